"""Episodes as seed and actions: kept in a few hundred bytes, played again bit for bit, watched as video."""

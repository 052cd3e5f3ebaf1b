"""Knock-outs: a training measured again and again, each time with one part left out."""

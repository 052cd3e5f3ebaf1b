// What the page has of a run's files: thinned by the server at first, then row by row.
// of a series, before all of it is asked for anew: in a page that stays open for days, nothing may grow
const MOST_POINTS = 2000;
const MOST_NEW = 100; // behind points that the server has thinned
const NEAR_PX = 60;
const KINDS = ["metrics", "episodes", "hardware"];
const BANDS = ["low", "high"];

// a missing value is spanned by the line; only a gap breaks it
const spanned = (values) => values.map((value) => value ?? undefined);

// puts a break between two places, in all series
function withGaps({ x, mean, low, high, gaps }) {
  const found = { x: [], mean: {}, low: {}, high: {} };
  const parts = Object.entries({ mean, low: low ?? {}, high: high ?? {} });
  for (const [part, columns] of parts) for (const name of Object.keys(columns)) found[part][name] = [];
  let next = 0;
  x.forEach((place, at) => {
    while (next < gaps.length && gaps[next] < place) {
      found.x.push(gaps[next++]);
      for (const [part] of parts) for (const values of Object.values(found[part])) values.push(null);
    }
    found.x.push(place);
    for (const [part, columns] of parts) for (const [name, values] of Object.entries(columns)) found[part][name].push(values[at] ?? undefined);
  });
  return found;
}

export class Rows {
  constructor() {
    this.clear();
  }

  clear() {
    this.kinds = Object.fromEntries(KINDS.map((kind) => [kind, { mark: "", x: [], mean: {}, low: {}, high: {}, numbers: [], evaluations: { x: [], mean: [] } }]));
  }

  get marks() {
    return KINDS.map((kind) => `${kind}=${this.kinds[kind].mark}`).join("&");
  }

  // takes an answer of the server and returns the kinds that changed
  take(answer) {
    const changed = KINDS.filter((kind) => answer[kind]);
    for (const kind of changed) this.merge(this.kinds[kind], answer[kind]);
    return changed;
  }

  merge(known, news) {
    known.mark = news.mark;
    if (news.evaluations) known.evaluations = news.evaluations;
    if (news.whole) {
      Object.assign(known, withGaps({ ...news, gaps: news.gaps ?? [] }), { numbers: news.numbers ?? [] });
      known.most = Math.max(news.low ? 0 : MOST_POINTS, known.x.length + MOST_NEW);
      return;
    }
    const count = known.x.length;
    const last = count ? known.x[count - 1] : -Infinity;
    for (const x of news.x) known.x.push(Math.max(x, last)); // a chart needs places that never fall
    for (const [name, values] of Object.entries(news.mean)) {
      known.mean[name] ??= new Array(count).fill(undefined);
      for (const part of ["mean", ...BANDS]) known[part][name]?.push(...spanned(values));
    }
    for (const part of ["mean", ...BANDS]) {
      for (const values of Object.values(known[part])) while (values.length < known.x.length) values.push(undefined);
    }
    if (news.numbers) known.numbers.push(...news.numbers);
    if (known.x.length > known.most) known.mark = "";
  }

  // the number of the episode nearest to the cursor; none if that is far from all
  episodeAt(plot) {
    const { x, mean, numbers } = this.kinds.episodes;
    let [best, least] = [undefined, NEAR_PX];
    x.forEach((place, at) => {
      const across = plot.valToPos(place, "x") - plot.cursor.left;
      const distance = Math.abs(across) < least ? Math.hypot(across, plot.valToPos(mean.return[at], "y") - plot.cursor.top) : Infinity;
      if (distance < least) [best, least] = [numbers[at], distance];
    });
    return best;
  }
}

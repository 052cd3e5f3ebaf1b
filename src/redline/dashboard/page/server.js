// Asks the server again and again, slowly while nobody looks, and by itself once more when it is back.
const SOON_MS = 750;
const HIDDEN_MS = 15000;
const RETRY_MS = [500, 1000, 2000];
const SLOW_MS = 8000;

const connection = document.getElementById("connection");

function tell(words, css) {
  if (connection.textContent !== words) connection.textContent = words;
  connection.className = css;
}

export class ServerError extends Error {
  constructor(status, words) {
    super(words);
    this.status = status;
  }
}

export async function ask(path, { method = "GET", timeout = SLOW_MS } = {}) {
  const answer = await fetch(path, { method, cache: "no-store", signal: AbortSignal.timeout(timeout) });
  if (answer.status === 304) return null;
  if (answer.ok) return answer.json();
  const text = await answer.text();
  let words = text.trim();
  try {
    words = JSON.parse(text).error ?? words;
  } catch {
    // a plain sentence
  }
  throw new ServerError(answer.status, words);
}

// calls `look` until the returned function is called; `look` returns how many ms to wait, or nothing for the usual time
export function keepLooking(look, onRefused) {
  let timer = 0;
  let failures = 0;
  let isOver = false;
  let isBusy = false;
  let isAgain = false; // asked for while busy

  const turn = async () => {
    if (isOver) return;
    if (isBusy) {
      isAgain = true;
      return;
    }
    isBusy = true;
    let wait = SOON_MS;
    try {
      wait = (await look()) ?? SOON_MS;
      failures = 0;
      if (!isOver) tell("live", "live");
    } catch (error) {
      if (isOver) return;
      if (error instanceof ServerError && error.status < 500) {
        tell("", "");
        onRefused(error);
        wait = 5000;
      } else {
        wait = RETRY_MS[Math.min(failures++, RETRY_MS.length - 1)];
        tell("the server does not answer: trying again", "lost");
      }
    } finally {
      isBusy = false;
    }
    if (isOver) return;
    if (isAgain) wait = 0;
    isAgain = false;
    timer = setTimeout(turn, document.hidden ? Math.max(wait, HIDDEN_MS) : wait);
  };
  const wake = () => {
    if (document.hidden) return;
    clearTimeout(timer);
    turn();
  };
  document.addEventListener("visibilitychange", wake);
  addEventListener("online", wake);
  turn();
  return Object.assign(
    () => {
      isOver = true;
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", wake);
      removeEventListener("online", wake);
    },
    { now: wake },
  );
}

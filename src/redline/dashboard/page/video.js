// Recorded episodes: played again from their actions when somebody asks.
import * as address from "./address.js";
import { h, setText } from "./dom.js";
import { ask } from "./server.js";
import { amount } from "./words.js";

const LOOK_MS = 700;
const WORDS = { waiting: "waiting for another video …", making: "playing the episode again …" };

export function showVideos(id, liveOf) {
  let wanted = "";
  let timer = 0;
  let isOver = false;
  let hasBegun = false;

  const number = h("input", { type: "text", inputMode: "numeric", ariaLabel: "number of an episode", placeholder: "number", size: 8 });
  const told = h("p", { class: "under", role: "status" });
  const stage = h("div", { class: "stage" });
  const choices = h("form", { class: "chips", onsubmit: (event) => { event.preventDefault(); if (number.value.trim()) play(number.value.trim()); } },
    h("button", { type: "button", onclick: () => play("last") }, "newest"),
    h("button", { type: "button", onclick: () => play("best") }, "best"),
    number, h("button", { type: "submit" }, "play"));
  const element = h("div", { class: "card videos" }, choices, told, stage);

  const path = (episode) => `/api/runs/${id}/videos/${encodeURIComponent(episode)}`;

  async function play(episode) {
    hasBegun = true;
    wanted = episode;
    address.set({ episode });
    stage.replaceChildren();
    clearTimeout(timer);
    await follow(episode, "POST");
  }

  async function follow(episode, method) {
    let video;
    try {
      video = await ask(path(episode), { method });
    } catch (error) {
      if (wanted === episode) setText(told, error.message);
      return;
    }
    if (isOver || wanted !== episode) return;
    if (video.state === "made") return show(episode, video);
    setText(told, video.state === "failed" ? video.why : WORDS[video.state] ?? "");
    if (video.state !== "failed") timer = setTimeout(() => follow(episode, "GET"), LOOK_MS);
  }

  function show(episode, video) {
    const { number: shown, value, length } = video.about;
    setText(told, `Episode ${shown ?? episode}: return ${amount(value)} in ${amount(length)} steps`);
    const source = `${path(episode)}/file?of=${encodeURIComponent(shown ?? episode)}-${video.made}`;
    stage.replaceChildren(video.kind === "mp4"
      ? h("video", { src: source, controls: true, autoplay: true, muted: true, loop: true, playsInline: true, ariaLabel: `episode ${shown ?? episode}` })
      : h("img", { src: source, alt: `episode ${shown ?? episode}` }));
  }

  // a run that goes on is left alone until somebody asks: playing an episode again takes a second or more of a core
  function update() {
    const live = liveOf();
    if (!live) return;
    element.classList.toggle("none", !live.recorded);
    choices.hidden = !live.recorded;
    if (!live.recorded) return void setText(told, live.why_not_recorded);
    if (hasBegun) return;
    const asked = address.get("episode");
    if (asked) play(asked);
    else if (live.state !== "running") seen.observe(element);
    else setText(told, "The run goes on. To play an episode again takes some seconds of a core, when it is idle.");
  }
  const seen = new IntersectionObserver(([{ isIntersecting }]) => {
    if (!isIntersecting || hasBegun) return;
    seen.disconnect();
    play("last");
  });

  return {
    element,
    update,
    play: (episode) => {
      element.scrollIntoView({ behavior: "smooth", block: "nearest" });
      return play(episode);
    },
    close: () => {
      isOver = true;
      clearTimeout(timer);
      seen.disconnect();
    },
  };
}

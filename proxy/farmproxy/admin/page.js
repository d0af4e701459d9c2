"use strict";
const STATES = ["free", "dialling", "leased", "recycling", "set-aside", "unready"];
const ROWS = 200; // a page of 8,000 rows helps nobody
const POLL_MS = 2000;

function make(tag, props, ...children) {
  const element = Object.assign(document.createElement(tag), props);
  element.append(...children); // strings become text nodes: nothing a caller wrote is ever parsed as HTML
  return element;
}

const seconds = (value) => (value >= 100 ? value.toFixed(0) : value.toFixed(1)) + " s";
const tile = (name, value) => make("div", { className: "tile" }, make("b", {}, String(value)), name);

function table(title, heads, rows) {
  if (!rows.length) return "";
  const body = rows.slice(0, ROWS).map((row) => make("tr", {}, ...row.map((cell) => make("td", {}, cell))));
  const more = rows.length > ROWS ? make("p", { className: "quiet" }, `and ${rows.length - ROWS} more`) : "";
  const head = make("tr", {}, ...heads.map((name) => make("th", {}, name)));
  return make("section", {}, make("h3", {}, `${title} (${rows.length})`),
    make("table", {}, make("thead", {}, head), make("tbody", {}, ...body)), more);
}

function stateCell(pod) {
  const text = pod.state + (pod.terminating ? ", terminating" : "");
  return make("span", {}, make("span", { className: "dot " + pod.state }), text);
}

function bar(counts, total) {
  const parts = STATES.filter((state) => counts[state]).map((state) => {
    const part = make("div", { className: state, title: `${state}: ${counts[state]}` });
    part.style.flex = `${counts[state] / total}`;
    return part;
  });
  return make("div", { className: "bar" }, ...parts);
}

function pool(name, view) {
  const counts = {};
  for (const pod of view.pods) counts[pod.state] = (counts[pod.state] || 0) + 1;
  return make("section", {},
    make("h2", {}, name, make("span", { className: "quiet" }, ` Service ${view.service}`)),
    make("div", { className: "tiles" }, tile("demand", view.demand), tile("held", view.held.length),
      tile("leases", view.leases.length), tile("pods", view.pods.length),
      ...STATES.map((state) => tile(state, counts[state] || 0))),
    bar(counts, view.pods.length || 1),
    table("Held", ["label", "waited", "left", "dials", "id"],
      view.held.map((held) => [held.label, seconds(held.waited_s), seconds(held.left_s), String(held.dials), held.id])),
    table("Leases", ["label", "pod", "age", "left", "id"],
      view.leases.map((lease) => [lease.label, lease.pod, seconds(lease.age_s), seconds(lease.left_s), lease.id])),
    table("Pods", ["name", "state", "address", "faults", "set aside"],
      view.pods.map((pod) => [pod.name, stateCell(pod), pod.address, String(pod.faults),
        pod.set_aside_s ? seconds(pod.set_aside_s) : ""])));
}

function draw(status) {
  document.getElementById("version").textContent = status.version;
  const state = document.getElementById("state");
  state.textContent = (status.draining ? "draining, " : "") + "watch " + seconds(status.watch_age_s) + " old";
  state.className = status.draining ? "bad" : "";
  document.getElementById("pools").replaceChildren(
    ...Object.entries(status.pools).map(([name, view]) => pool(name, view)));
}

async function poll() {
  if (!document.hidden) {
    try {
      draw(await (await fetch("status", { signal: AbortSignal.timeout(10 * POLL_MS) })).json());
    } catch (error) {
      const state = document.getElementById("state");
      state.textContent = "the proxy does not answer";
      state.className = "bad";
    }
  }
  setTimeout(poll, POLL_MS);
}

poll();

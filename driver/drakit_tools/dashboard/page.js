"use strict";
// Draws the state that /state returns, every second. All text is set as text, never as markup.

const EVERY_MS = 1000;
const MANY = 8;
const byId = (id) => document.getElementById(id);
const dark = matchMedia("(prefers-color-scheme: dark)");
let state = null;
let etag = "";
let answeredAt = 0;
let former = { at: 0, bytes: new Map() };
let rates = new Map();
const opened = new Set();
let drawn = new Map();

// The token comes in the fragment of the address; it stays in this tab only.
if (location.hash.length > 1) {
  sessionStorage.setItem("token", location.hash.slice(1));
  history.replaceState(null, "", location.pathname);
}

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "class") made.className = value;
    else if (value !== null && value !== false) made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== ""));
  return made;
}

function counted(number, noun) {
  return `${number} ${noun}${number === 1 ? "" : "s"}`;
}

// One colour for each claim, in order of appearance; neighbours in that order differ by the golden angle.
const order = new Map();
function colour(claim) {
  if (!order.has(claim)) order.set(claim, order.size);
  const hue = Math.round(order.get(claim) * 137.508 + 215) % 360;
  return dark.matches ? `hsl(${hue} 60% 68%)` : `hsl(${hue} 62% 26%)`;
}

// The names of claims without their namespaces, for places that are narrow.
function short(label) {
  return label.split(", ").map((claim) => claim.slice(claim.indexOf("/") + 1)).join(", ");
}

function coloured(made, claim) {
  made.style.setProperty("--claim", colour(claim));
  return made;
}

function rate(bits) {
  if (bits < 0) return "";
  for (const [unit, size] of [["Tbit/s", 1e12], ["Gbit/s", 1e9], ["Mbit/s", 1e6], ["kbit/s", 1e3]]) {
    if (bits >= size) return `${Number((bits / size).toPrecision(3))} ${unit}`;
  }
  return `${Math.round(bits)} bit/s`;
}

function isWell(health) {
  return (health.state === "" || health.state === "Healthy") && health.taints.length === 0;
}

function badges(health) {
  const made = [];
  if (health.state) made.push(element("span", { class: `badge ${health.state === "Healthy" ? "good" : health.state === "Unknown" ? "warn" : "bad"}` }, health.state));
  for (const taint of health.taints) made.push(element("span", { class: "badge warn" }, `taint ${taint}`));
  return made;
}

function problem(health) {
  return health.message ? element("p", { class: "problem" }, health.message) : null;
}

function gpuCard(gpu) {
  const map = element("div", { class: "map", role: "img", "aria-label": gpuWords(gpu) });
  map.style.gridTemplateColumns = `repeat(${gpu.width}, minmax(0, 1fr))`;
  let place = 0;
  for (const span of gpu.spans) {
    for (; place < span.start; place++) map.append(element("div", { class: "slot" }, String(place)));
    const used = coloured(element("div", { class: "slot used", title: `${span.label}: slices ${span.start} to ${span.start + span.size - 1}` }, short(span.label)), span.label);
    used.style.gridColumn = `span ${span.size}`;
    map.append(used);
    place = span.start + span.size;
  }
  for (; place < gpu.width; place++) map.append(element("div", { class: "slot" }, String(place)));
  const fits = gpu.together.length ? `still fits ${gpu.together.map(listed).join("; or ")}` : "nothing more fits";
  const better = gpu.fragmented ? `; ${gpu.fragmented}` : "";
  const alone = listed(Object.fromEntries(Object.entries(gpu.alone).filter(([, number]) => number > 0)));
  return element("div", { class: "device" },
    element("div", { class: "device-head" }, element("h4", {}, gpu.name), ...badges(gpu.health)),
    map, problem(gpu.health), element("div", { class: "facts", title: alone ? `each kind if no other is used: ${alone}` : null }, fits + better));
}

// Devices by kind, such as "2 x 3g.20gb, 1 x 1g.5gb". Spaces do not break inside a count.
function listed(counts) {
  return Object.entries(counts).map(([kind, number]) => `${number}\u00a0×\u00a0${kind}`).join(", ");
}

function gpuWords(gpu) {
  const used = gpu.spans.map((span) => `${span.label} has slices ${span.start} to ${span.start + span.size - 1}`);
  return `${gpu.name}: ${counted(gpu.width, "memory slice")}. ${used.length ? used.join(", ") : "all free"}.`;
}

function nicCard(nic) {
  const used = nic.shares.reduce((sum, share) => sum + share.amount, 0);
  const bar = element("div", { class: "bar", role: "img", "aria-label": `${nic.name}: ${rate(used)} of ${rate(nic.capacity)} allocated` });
  const list = element("ul", { class: "shares" });
  for (const share of nic.shares) {
    const part = coloured(element("span", { title: `${share.claim}: ${rate(share.amount)}` }), share.claim);
    part.style.width = `${(100 * share.amount) / (nic.capacity || 1)}%`;
    bar.append(part);
    const now = rates.get(share.share);
    const use = now ? ` sends ${rate(now.sent)}, receives ${rate(now.received)}` : "";
    list.append(element("li", {}, coloured(element("span", { class: "swatch" }), share.claim),
      element("span", {}, share.claim), element("span", { class: "rate facts" }, rate(share.amount) + use)));
  }
  return element("div", { class: "device" },
    element("div", { class: "device-head" }, element("h4", {}, nic.name), ...badges(nic.health),
      element("span", { class: "facts" }, `${rate(Math.max(nic.capacity - used, 0))} of ${rate(nic.capacity)} free`)),
    bar, problem(nic.health), list);
}

function otherCard(device) {
  return element("div", { class: "device" },
    element("div", { class: "device-head" }, element("h4", {}, device.name), element("span", { class: "facts" }, device.kind), ...badges(device.health)),
    problem(device.health), element("div", { class: "facts" }, device.claims.length ? `in use by ${device.claims.join(", ")}` : "free"));
}

function matches(text, ...values) {
  return text === "" || values.some((value) => String(value).toLowerCase().includes(text));
}

function chosen(devices, node, pool, text, onlyUnwell) {
  return devices.filter((device) => {
    const claims = device.spans ? device.spans.map((span) => span.label) : device.shares ? device.shares.map((share) => share.claim) : device.claims;
    return matches(text, node.name, pool.driver, pool.name, device.name, ...claims) && !(onlyUnwell && isWell(device.health));
  });
}

function poolCard(node, pool, text, onlyUnwell) {
  const cards = [
    ...chosen(pool.gpus, node, pool, text, onlyUnwell).map(gpuCard),
    ...chosen(pool.nics, node, pool, text, onlyUnwell).map(nicCard),
    ...chosen(pool.others, node, pool, text, onlyUnwell).map(otherCard),
  ];
  if (!cards.length && (text || onlyUnwell)) return null;
  const facts = [pool.name === node.name ? "" : `pool ${pool.name}`, pool.generation ? `generation ${pool.generation}` : "", pool.slices ? `slices ${pool.slices}` : ""];
  return element("div", { class: "pool" },
    element("div", { class: "pool-head" }, element("h4", {}, pool.driver), element("span", { class: "facts" }, facts.filter(Boolean).join(" · "))),
    pool.note ? element("p", { class: "problem" }, pool.note) : null,
    element("div", { class: "devices" }, ...cards), cards.length ? null : element("p", { class: "facts" }, "no device"));
}

// With many nodes the cards are small, and a node's name opens its card.
function toggle(key, name) {
  const made = element("button", { type: "button", class: "toggle", "aria-expanded": String(opened.has(key)) }, name);
  made.dataset.node = key;
  made.addEventListener("click", () => {
    if (!opened.delete(key)) opened.add(key);
    draw();
  });
  return made;
}

function drawNodes(text, onlyUnwell) {
  const cards = [];
  const isMany = state.nodes.length > MANY;
  const focused = document.activeElement?.dataset.node;
  for (const node of state.nodes) {
    const pools = node.pools.map((pool) => poolCard(node, pool, text, onlyUnwell)).filter(Boolean);
    if (!pools.length) continue;
    const name = node.name || "Pools without a node";
    const card = element("article", { class: "node" }, element("h3", {}, isMany ? toggle(node.name, name) : name), ...pools);
    card.classList.toggle("open", opened.has(node.name));
    const before = drawn.get(node.name);
    const now = JSON.stringify(node);
    if (before !== undefined && before !== now) card.classList.add("changed");
    drawn.set(node.name, now);
    cards.push(card);
  }
  const nodes = byId("nodes");
  nodes.classList.toggle("single", state.nodes.length === 1);
  nodes.classList.toggle("many", isMany);
  nodes.replaceChildren(...cards);
  if (focused !== undefined) nodes.querySelector(`[data-node="${CSS.escape(focused)}"]`)?.focus();
  byId("none").hidden = cards.length > 0;
}

function drawClaims(text) {
  const open = new Set([...document.querySelectorAll("#claims details[open]")].map((made) => made.dataset.uid));
  const rows = state.claims.filter((row) => matches(text, row.claim, row.uid, row.state, row.driver, row.node, ...row.devices)).map((row) => {
    const steps = element("details", {}, element("summary", {}, ...row.devices.flatMap((device, at) => [at ? " " : "", element("span", { class: "device-name" }, device + (at < row.devices.length - 1 ? "," : ""))])), element("ol", {}, ...row.steps.map((step) => element("li", {}, step))));
    steps.dataset.uid = `${row.uid} ${row.driver}`;
    steps.open = open.has(steps.dataset.uid);
    const cell = (name, ...inside) => element("td", { "data-label": name }, ...inside);
    return element("tr", {}, cell("Claim", coloured(element("span", { class: "swatch" }), row.claim), ` ${row.claim}`),
      cell("State", row.state), cell("Node", row.node), cell("Driver", row.driver), cell("Devices", row.devices.length ? steps : ""));
  });
  byId("claims").replaceChildren(...(rows.length ? rows : [element("tr", {}, element("td", { colspan: "5", class: "empty" }, "No claim."))]));
}

function drawEvents() {
  byId("events-section").hidden = state.events.length === 0;
  byId("events").replaceChildren(...state.events.slice(0, 25).map((event) => element("li", {},
    element("span", { class: "facts" }, `${event.time} `), event.warning ? element("span", { class: "badge warn" }, "Warning") : "",
    ` ${event.reason} ${event.about}: ${event.message}${event.count > 1 ? ` (${event.count} times)` : ""}`)));
}

function drawTotals() {
  const pools = state.nodes.flatMap((node) => node.pools);
  const gpus = pools.flatMap((pool) => pool.gpus);
  const nics = pools.flatMap((pool) => pool.nics);
  const slices = gpus.reduce((sum, gpu) => sum + gpu.width, 0);
  const taken = gpus.reduce((sum, gpu) => sum + gpu.spans.reduce((part, span) => part + span.size, 0), 0);
  const capacity = nics.reduce((sum, nic) => sum + nic.capacity, 0);
  const shared = nics.reduce((sum, nic) => sum + nic.shares.reduce((part, share) => part + share.amount, 0), 0);
  const unwell = [...gpus, ...nics, ...pools.flatMap((pool) => pool.others)].filter((device) => !isWell(device.health)).length;
  const totals = [["Nodes", String(state.nodes.filter((node) => node.name).length)], ["Claims", String(new Set(state.claims.map((row) => row.uid)).size)]];
  if (gpus.length) totals.push(["GPU memory slices in use", `${taken} of ${slices}`]);
  if (nics.length) totals.push(["NIC bandwidth allocated", `${rate(shared)} of ${rate(capacity)}`]);
  totals.push(["Unhealthy", counted(unwell, "device")]);
  byId("totals").replaceChildren(...totals.map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value))));
}

function measure() {
  const at = performance.now();
  const bytes = new Map();
  for (const node of state.nodes) for (const pool of node.pools) for (const nic of pool.nics) for (const share of nic.shares) {
    if (share.sent >= 0) bytes.set(share.share, share);
  }
  const seconds = (at - former.at) / 1000;
  rates = new Map();
  for (const [id, share] of bytes) {
    const before = former.bytes.get(id);
    if (before && seconds > 0) rates.set(id, { sent: Math.max(0, (8 * (share.sent - before.sent)) / seconds), received: Math.max(0, (8 * (share.received - before.received)) / seconds) });
  }
  former = { at, bytes };
}

function draw() {
  if (!state) return;
  const text = byId("filter").value.trim().toLowerCase();
  byId("title").textContent = state.title;
  document.title = `${state.title || "drakit"} · drakit dashboard`;
  drawTotals();
  drawNodes(text, byId("unhealthy").checked);
  drawClaims(text);
  drawEvents();
}

function say(text, isOld) {
  const status = byId("status");
  if (status.textContent !== text) status.textContent = text;
  status.classList.toggle("old", isOld);
}

async function read() {
  try {
    const headers = { Authorization: `Bearer ${sessionStorage.getItem("token") || ""}`, ...(etag ? { "If-None-Match": etag } : {}) };
    const answer = await fetch("/state", { headers, cache: "no-store" });
    if (answer.status === 401) return say("Open the address that drakit dashboard printed: it has the token.", true);
    if (!answer.ok && answer.status !== 304) throw new Error(`status ${answer.status}`);
    const isNew = answer.status !== 304;
    if (isNew) {
      state = await answer.json();
      etag = answer.headers.get("ETag") || "";
    }
    answeredAt = Date.now();
    measure();
    if (isNew || rates.size) draw();
    say(state.problem ? state.problem : "Live", Boolean(state.problem));
    byId("note").textContent = state.note;
  } catch (error) {
    const since = answeredAt ? `for ${Math.round((Date.now() - answeredAt) / 1000)} s` : "";
    say(`No answer ${since}: is drakit dashboard still running?`, true);
  }
}

byId("filters").addEventListener("submit", (event) => event.preventDefault());
byId("filter").addEventListener("input", draw);
byId("unhealthy").addEventListener("change", draw);
dark.addEventListener("change", draw);
read();
setInterval(() => { if (!document.hidden) read(); }, EVERY_MS);
document.addEventListener("visibilitychange", () => { if (!document.hidden) read(); });

"use strict";
// Draws the state that /state returns, every second. All text is set as text, never as markup.

const EVERY_MS = 1000;
const MANY = 8;
const ROWS = { waiting: 10, namespaces: 5, claims: 25 };
const byId = (id) => document.getElementById(id);
const dark = matchMedia("(prefers-color-scheme: dark)");
let state = null;
let etag = "";
let answeredAt = 0;
let former = { at: 0, bytes: new Map() };
let rates = new Map();
let sorted = { column: "Claim", descending: false };
const opened = new Set();
let openedFor = "";
let shortNames = new Map();
const shownAll = new Set();
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

function devicesAndShares(number) {
  return `${number} ${number === 1 ? "device or share" : "devices and shares"}`;
}

// One colour for each claim, in order of appearance; neighbours in that order differ by the golden angle.
const order = new Map();
function colour(claim) {
  if (!order.has(claim)) order.set(claim, order.size);
  const hue = Math.round(order.get(claim) * 137.508 + 215) % 360;
  return dark.matches ? `hsl(${hue} 60% 68%)` : `hsl(${hue} 62% 26%)`;
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

// A time as its age, such as "5 min", with the time itself on hover. tick() keeps it current.
function age(time) {
  if (!Number.isFinite(Date.parse(time))) return null;
  return element("time", { datetime: time, title: time }, ageText(time));
}

function ageText(time) {
  const seconds = Math.max(0, (Date.now() - Date.parse(time)) / 1000);
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 48 * 3600) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86400)} d`;
}

function tick() {
  for (const made of document.querySelectorAll("time")) {
    const text = ageText(made.dateTime);
    if (made.textContent !== text) made.textContent = text;
  }
}

function isWell(health) {
  return (health.state === "" || health.state === "Healthy") && health.taints.length === 0;
}

function badges(health) {
  const made = [];
  if (health.state) made.push(element("span", { class: `badge ${health.state === "Healthy" ? "good" : health.state === "Unknown" ? "warn" : "bad"}` }, health.state));
  for (const taint of health.taints) {
    const since = age(taint.since);
    const more = since || taint.rule ? element("span", { class: "facts" }, ...(since ? ["for ", since] : []), taint.rule ? `${since ? " " : ""}by DeviceTaintRule ${taint.rule}` : "") : "";
    // One element, so that an age never stands on the line of the next taint.
    made.push(element("span", { class: "taint" }, element("span", { class: "badge warn" }, `taint ${taint.text}`), more && " ", more));
  }
  return made;
}

function problem(health) {
  return health.message ? element("p", { class: "problem" }, health.message) : null;
}

// Who uses a device, as short as a segment needs it: the first pod, or the claim, without the namespace; of several claims their number.
function shortUse(uses) {
  return uses.length > 1 ? counted(uses.length, "claim") : (uses[0].pods[0] || uses[0].claim).split("/").pop();
}

// A name that is cut in its middle where there is no room, because the ends of pods' names differ.
const TAIL = 6;
function shortened(name) {
  return element("span", { class: "short" }, element("span", { class: "head" }, name.slice(0, -TAIL)), element("span", {}, name.slice(-TAIL)));
}

function useWords(use) {
  const pods = use.pods.length ? `${use.pods.length === 1 ? "pod" : "pods"} ${use.pods.join(", ")}, ` : "";
  return `${pods}claim ${use.claim}${use.since ? `, for ${ageText(use.since)}` : ""}`;
}

// Who uses a device: pods and claim with their namespaces, and the age.
function useParts(use) {
  const since = age(use.since);
  return [
    use.pods.length ? element("span", {}, `pod ${use.pods.join(", ")}`) : null,
    element("span", use.pods.length ? { class: "facts" } : {}, `claim ${use.claim}`),
    since && element("span", { class: "facts" }, since),
  ];
}

function useLine(kind, use, more = "", letter = "") {
  return element("li", {}, coloured(element("span", { class: letter ? "letter" : "swatch" }, letter), use.claim), kind ? element("span", {}, kind) : null, ...useParts(use),
    more ? element("span", { class: "facts" }, more) : null);
}

function readingWords(readings, facts) {
  const words = [];
  if (readings.utilization !== null) words.push(`${Math.round(100 * readings.utilization)}% busy`);
  if (readings.memory_used !== null) words.push(`${gibibytes(readings.memory_used) || "0 GiB"}${facts.memory ? ` of ${facts.memory}` : ""} used`);
  if (readings.temperature !== null) words.push(`${Math.round(readings.temperature)} °C`);
  if (readings.power !== null) words.push(`${Math.round(readings.power)}${readings.power_limit === null ? "" : ` of ${Math.round(readings.power_limit)}`} W`);
  return words.join(" · ");
}

function factLines(device) {
  const readings = readingWords(device.readings, device.facts);
  return [
    device.facts.model || device.facts.memory ? element("span", { class: "facts" }, [device.facts.model, device.facts.memory].filter(Boolean).join(" · ")) : null,
    readings ? element("span", { class: "facts" }, readings) : null,
    device.facts.uuid ? element("span", { class: "facts uuid" }, device.facts.uuid) : null,
  ];
}

function gpuCard(gpu, closed) {
  const map = element("div", { class: "map", role: "img", "aria-label": gpuWords(gpu) });
  map.style.gridTemplateColumns = `repeat(${gpu.width}, minmax(0, 1fr))`;
  let place = 0;
  // A segment may have room for one letter only, which the list below it explains.
  const inUse = gpu.spans.filter((span) => span.uses.length);
  const letterOf = (span) => String.fromCharCode(65 + inUse.indexOf(span) % 26);
  for (const span of [...gpu.spans, null]) {
    for (; place < (span ? span.start : gpu.width); place++) map.append(element("div", { class: "slot" }, String(place)));
    if (!span) break;
    const used = element("div", { class: `slot ${span.uses.length ? "used" : "others"}`, title: spanWords(span) }, ...(span.uses.length
      ? [element("span", {}, letterOf(span)), element("span", { class: "kind" }, span.kind), shortened(shortUse(span.uses))] : ["admin"]));
    if (span.uses.length) coloured(used, span.uses[0].claim);
    used.style.gridColumn = `span ${span.size}`;
    map.append(used);
    place = span.start + span.size;
  }
  const left = gpu.spans.filter((span) => span.left).map((span) => `${gibibytes(span.left)} of ${gibibytes(span.memory)} left to share${closed ? ` (${closed})` : ""}`);
  const fits = left.length ? left.join("; ") : gpu.together.length ? `still fits ${gpu.together.map(listed).join("; or ")}` : `nothing more fits${closed ? ` (${closed})` : ""}`;
  const better = gpu.fragmented ? `; ${gpu.fragmented}` : "";
  const alone = listed(Object.fromEntries(Object.entries(gpu.alone).filter(([, number]) => number > 0)));
  const uses = inUse.flatMap((span) => span.uses.map((use) => useLine(span.kind, use, "", letterOf(span))));
  return element("div", { class: "device" },
    element("div", { class: "device-head" }, element("h4", {}, gpu.name), ...badges(gpu.health), ...factLines(gpu)),
    map, problem(gpu.health), uses.length ? element("ul", { class: "uses" }, ...uses) : null,
    element("div", { class: "facts", title: alone ? `each kind if no other is used: ${alone}` : null }, fits + better));
}

// Devices by kind, such as "2 × 3g.20gb, 1 × 1g.5gb". Spaces do not break inside a count.
function listed(counts) {
  return Object.entries(counts).map(([kind, number]) => `${number}\u00a0×\u00a0${kind}`).join(", ");
}

function spanWords(span) {
  const place = span.size === 1 ? `slice ${span.start}` : `slices ${span.start} to ${span.start + span.size - 1}`;
  return span.uses.length ? `${span.kind} on ${place}: ${span.uses.map(useWords).join("; ")}` : `${place}: an instance that drakit did not make`;
}

function gpuWords(gpu) {
  return `${gpu.name}: ${counted(gpu.width, "memory slice")}. ${gpu.spans.length ? gpu.spans.map(spanWords).join(". ") : "All free"}.`;
}

function shared(nic) {
  return nic.shares.reduce((sum, share) => sum + share.amount, 0);
}

// What nobody uses is not free on a node to which no pods come.
function freeWords(closed) {
  return closed ? `unused (${closed})` : "free";
}

function closedWords(node) {
  return node.notes.map((note) => note.split(":")[0]).join(", ");
}

// The name of a NIC or its share in the pod, which is not that on the node.
function inPod(name) {
  return name ? `${name} in the pod` : "";
}

function nicCard(nic, closed) {
  const used = shared(nic);
  const bar = element("div", { class: "bar", role: "img", "aria-label": `${nic.name}: ${rate(used)} of ${rate(nic.capacity)} allocated` });
  const list = element("ul", { class: "uses" });
  for (const share of nic.shares) {
    const part = coloured(element("span", { title: [`${useWords(share.use)}: ${rate(share.amount)}`, inPod(share.interface)].filter(Boolean).join(", ") }), share.use.claim);
    part.style.width = `${(100 * share.amount) / (nic.capacity || 1)}%`;
    bar.append(part);
    const now = rates.get(share.share);
    list.append(useLine(rate(share.amount), share.use, [inPod(share.interface), now ? `sends ${rate(now.sent)}, receives ${rate(now.received)}` : ""].filter(Boolean).join(", ")));
  }
  return element("div", { class: "device" },
    element("div", { class: "device-head" }, element("h4", {}, nic.name), nic.interface ? element("span", { class: "facts" }, nic.interface) : null, ...badges(nic.health),
      element("span", { class: "facts" }, `${rate(Math.max(nic.capacity - used, 0))} of ${rate(nic.capacity)} ${freeWords(closed)}`)),
    bar, problem(nic.health), nic.shares.length ? list : null);
}

function otherCard(device, closed) {
  return element("div", { class: "device" },
    element("div", { class: "device-head" }, element("h4", {}, device.name), element("span", { class: "facts" }, device.kind), ...badges(device.health), ...factLines(device)),
    problem(device.health), device.uses.length ? element("ul", { class: "uses" }, ...device.uses.map((use) => useLine("", use))) : element("div", { class: "facts" }, freeWords(closed)));
}

const CARDS = { gpus: gpuCard, nics: nicCard, others: otherCard };

// Text as a filter compares it: without case, with plain spaces, and with x for ×.
function plain(text) {
  return text.toLowerCase().replaceAll("\u00a0", " ").replaceAll("×", "x");
}

// What a card prints, its hover texts and its labels for screen readers included, so that the filter finds what people read.
function printed(card) {
  const hidden = [...card.querySelectorAll("[title], [aria-label]")].flatMap((made) => [made.title, made.getAttribute("aria-label") || ""]);
  const parts = [];
  const walk = (node) => { for (const child of node.childNodes) { if (child.nodeType === Node.TEXT_NODE) parts.push(child.data); else walk(child); } };
  walk(card);
  return plain([...parts, ...hidden].join(" "));
}

const words = new WeakMap();
function wordsOf(kind, device, closed) {
  if (!words.has(device)) words.set(device, printed(CARDS[kind](device, closed)));
  return words.get(device);
}

function matches(terms, text) {
  return terms.every((term) => text.includes(term));
}

function hasFree(kind, device) {
  if (!isWell(device.health)) return false;
  return kind === "gpus" ? device.has_room : kind === "nics" ? shared(device) < device.capacity : device.uses.length === 0;
}

function nodeWords(node) {
  return plain([node.name || "pools without a node", ...node.notes].join(" "));
}

function poolFacts(node, pool) {
  const facts = [pool.name === node.name ? "" : `pool ${pool.name}`, pool.generation ? `generation ${pool.generation}` : "", pool.slices ? `slices ${pool.slices}` : ""];
  return facts.filter(Boolean).join(" · ");
}

function poolWords(node, pool) {
  const lost = pool.unpublished.flatMap((device) => [device.name, ...device.uses.map(useWords)]);
  return plain([pool.driver, pool.name, poolFacts(node, pool), pool.note, ...lost].join(" "));
}

// The devices of a pool that the filters choose, by kind.
function chosen(node, pool, filters) {
  const around = `${nodeWords(node)} ${poolWords(node, pool)}`;
  const closed = closedWords(node);
  return Object.keys(CARDS).map((kind) => [kind, pool[kind].filter((device) => {
    if (filters.unwell && isWell(device.health)) return false;
    if (filters.unused && (closed || !hasFree(kind, device))) return false;
    return filters.terms.length === 0 || matches(filters.terms, `${around} ${wordsOf(kind, device, closed)}`);
  })]);
}

function poolCard(node, pool, picked, isFiltered) {
  const cards = picked.flatMap(([kind, devices]) => devices.map((device) => CARDS[kind](device, closedWords(node))));
  if (!cards.length && isFiltered && !pool.is_down) return null;
  return element("div", { class: "pool" },
    element("div", { class: "pool-head" }, element("h4", {}, pool.driver), element("span", { class: "facts" }, poolFacts(node, pool))),
    pool.note ? element("p", { class: "problem" }, pool.note) : null,
    pool.unpublished.length ? element("ul", { class: "uses" }, ...pool.unpublished.flatMap((device) => device.uses.map((use) => useLine(device.name, use)))) : null,
    element("div", { class: "devices" }, ...cards), cards.length || pool.is_down ? null : element("p", { class: "facts" }, "no device"));
}

// One device as a small bar, for a node among many.
function mini(kind, device) {
  const parts = kind === "gpus" ? device.spans.map((span) => [span.start / device.width, span.size / device.width, span.uses[0]?.claim])
    : kind === "nics" ? device.shares.map((share, at) => [device.shares.slice(0, at).reduce((sum, other) => sum + other.amount, 0) / (device.capacity || 1), share.amount / (device.capacity || 1), share.use.claim])
    : device.uses.length ? [[0, 1, device.uses[0].claim]] : [];
  const users = kind === "gpus" ? device.spans.flatMap((span) => span.uses) : kind === "nics" ? device.shares.map((share) => share.use) : device.uses;
  const text = `${[device.name, device.interface].filter(Boolean).join(" ")}: ${users.length ? users.map(useWords).join("; ") : "free"}${isWell(device.health) ? "" : `. ${["", "Healthy"].includes(device.health.state) ? "Tainted" : device.health.state}`}`;
  const made = element("div", { class: `mini ${kind}${isWell(device.health) ? "" : " unwell"}`, role: "img", "aria-label": text, title: text });
  for (const [start, size, claim] of parts) {
    const part = element("i");
    if (claim) coloured(part, claim);
    else part.style.background = "var(--soft)";
    part.style.left = `${100 * start}%`;
    part.style.width = `${100 * size}%`;
    made.append(part);
  }
  return made;
}

function unwellOf(pools) {
  return pools.flatMap((pool) => [...pool.gpus, ...pool.nics, ...pool.others]).filter((device) => !isWell(device.health)).length;
}

// How many devices of a node nobody uses. Those of a cordoned or not-ready node are not free.
function usage(node) {
  const isClosed = node.notes.length > 0;
  const devices = node.pools.flatMap((pool) => [...pool.gpus.map((gpu) => [gpu, gpu.spans.length === 0]), ...pool.others.map((device) => [device, device.uses.length === 0])]);
  const slices = node.pools.flatMap((pool) => pool.gpus);
  const taken = slices.reduce((sum, gpu) => sum + gpu.spans.reduce((part, span) => part + span.size, 0), 0);
  return { unused: isClosed ? 0 : devices.filter(([device, isUnused]) => isUnused && isWell(device.health)).length, total: devices.length, taken,
    free: isClosed ? 0 : devices.filter(([device, isUnused]) => isUnused && isWell(device.health)).length + slices.reduce((sum, gpu) => sum + (isWell(gpu.health) ? gpu.width : 0), 0) - taken,
    unwell: unwellOf(node.pools), down: node.pools.filter((pool) => pool.is_down).length };
}

// What would have to move if the node were drained: the pods and claims that use its devices.
function users(node) {
  const uses = node.pools.flatMap((pool) => [...pool.gpus.flatMap((gpu) => gpu.spans.flatMap((span) => span.uses)), ...pool.nics.flatMap((nic) => nic.shares.map((share) => share.use)),
    ...[...pool.others, ...pool.unpublished].flatMap((device) => device.uses)]);
  return { pods: [...new Set(uses.flatMap((use) => use.pods))].sort(), claims: new Set(uses.map((use) => use.claim)).size };
}

function drainLine(node) {
  const { pods, claims } = users(node);
  // The devices of a driver that is down are unknown here.
  if (!claims) return node.notes.length && !node.pools.some((pool) => pool.is_down) ? element("p", { class: "facts" }, "no pod has devices here") : null;
  const held = `${[...(pods.length ? [counted(pods.length, "pod")] : []), counted(claims, "claim")].join(" with ")}`;
  if (!node.notes.length) return element("p", { class: "facts" }, held);
  return element("p", { class: "facts" }, `still here: ${held}${pods.length ? `: ${pods.join(", ")}` : ""}. Whether they fit elsewhere: `, element("code", {}, `drakit plan --live --drain ${node.name}`));
}

const ORDERS = {
  name: () => 0,
  free: (left, right) => right.usage.free - left.usage.free,
  full: (left, right) => left.usage.free - right.usage.free,
  unwell: (left, right) => right.usage.unwell + right.usage.down + right.node.notes.length - left.usage.unwell - left.usage.down - left.node.notes.length,
};

// Names without their domain, such as that of a cloud, for small cards; none of those that would be ambiguous.
function withoutDomains(nodes) {
  const short = nodes.map((node) => node.name.split(".")[0]);
  return new Map(nodes.map((node, at) => [node.name, short[at]]).filter(([, name]) => short.indexOf(name) === short.lastIndexOf(name)));
}

// With many nodes the cards are small, and a node's name opens its card.
function toggle(key, name, short) {
  const made = element("button", { type: "button", class: "toggle", "aria-expanded": String(opened.has(key)), title: name }, short);
  made.dataset.node = key;
  made.addEventListener("click", () => {
    if (!opened.delete(key)) opened.add(key);
    draw();
  });
  return made;
}

function nodeCard(entry, isMany, isFiltered) {
  const { node, picked, usage } = entry;
  const isOpen = !isMany || opened.has(node.name);
  const name = node.name || "Pools without a node";
  const short = isOpen ? name : shortNames.get(node.name) || name;
  const notes = node.notes.map((note) => element("span", { class: "badge warn", title: note }, isOpen ? note : note.split(":")[0]));
  const card = element("article", { class: "node" }, element("h3", {}, isMany ? toggle(node.name, name, short) : name, ...(isOpen ? notes : [])));
  if (isOpen) {
    const drain = node.name && drainLine(node);
    if (drain) card.append(drain);
    card.append(...node.pools.map((pool, at) => poolCard(node, pool, picked[at], isFiltered)).filter(Boolean));
  } else {
    const minis = Object.keys(CARDS).flatMap((kind) => picked.flatMap((kinds) => new Map(kinds).get(kind).map((device) => mini(kind, device))));
    const problems = node.pools.filter((pool) => pool.note).length;
    card.append(element("div", { class: "minis" }, ...minis), element("div", { class: "facts" }, usage.total ? `${usage.unused} of ${usage.total} unused` : ""));
    if (usage.down) notes.push(element("span", { class: "badge bad nowrap", title: node.pools.map((pool) => pool.note).filter(Boolean).join("; ") }, "driver down"));
    if (usage.unwell || problems > usage.down) notes.push(element("span", { class: "badge bad nowrap" }, usage.unwell ? `${usage.unwell} unhealthy` : "incomplete"));
    if (notes.length) card.append(element("div", { class: "note" }, ...notes));
  }
  card.classList.toggle("open", isOpen && isMany);
  return card;
}

// Cards are drawn again only if their node or the filters changed.
function drawNodes(filters) {
  const isFiltered = filters.terms.length > 0 || filters.unwell || filters.unused;
  const focused = document.activeElement?.dataset.node;
  const entries = [];
  let shown = 0, total = 0;
  for (const node of state.nodes) {
    const picked = node.pools.map((pool) => chosen(node, pool, filters));
    const number = picked.flat().reduce((sum, [, devices]) => sum + devices.length, 0);
    total += node.pools.reduce((sum, pool) => sum + pool.gpus.length + pool.nics.length + pool.others.length, 0);
    shown += number;
    const isDown = !filters.unused && node.pools.some((pool) => pool.is_down && matches(filters.terms, `${nodeWords(node)} ${poolWords(node, pool)}`));
    if (number || !isFiltered || isDown) entries.push({ node, picked, usage: usage(node) });
  }
  // Nodes that a filter leaves are shown with their devices if they are few.
  const isMany = entries.length > MANY;
  const key = JSON.stringify([filters, isMany, dark.matches]);
  entries.sort(ORDERS[byId("order").value]);
  const next = new Map();
  const cards = entries.map((entry) => {
    const before = drawn.get(entry.node.name);
    const isOpen = opened.has(entry.node.name);
    const isSame = before && before.node === entry.node;
    const card = isSame && before.key === key && before.isOpen === isOpen && !rates.size ? before.card : nodeCard(entry, isMany, isFiltered);
    if (before && !isSame) card.classList.add("changed");
    next.set(entry.node.name, { node: entry.node, key, isOpen, card });
    return card;
  });
  drawn = next;
  const nodes = byId("nodes");
  nodes.classList.toggle("single", state.nodes.length === 1);
  nodes.classList.toggle("many", isMany);
  if (cards.length !== nodes.childElementCount || cards.some((card, at) => nodes.children[at] !== card)) nodes.replaceChildren(...cards);
  if (focused !== undefined) nodes.querySelector(`[data-node="${CSS.escape(focused)}"]`)?.focus();
  byId("none").hidden = cards.length > 0;
  byId("order-label").hidden = !isMany;
  const count = isFiltered ? `${shown} of ${counted(total, "device")}` : "";
  if (byId("count").textContent !== count) byId("count").textContent = count;
}

// Keep the first rows, with a button for the others. A button takes the room of a row, so a few more rows are shown.
const FEW = 3;
function limited(name, rows, noun) {
  const button = byId(`${name}-all`);
  const isLong = rows.length > ROWS[name] + FEW;
  const isCut = isLong && !shownAll.has(name);
  button.hidden = !isLong;
  button.textContent = isCut ? `Show all ${counted(rows.length, noun)}` : `Show the first ${ROWS[name]}`;
  return isCut ? rows.slice(0, ROWS[name]) : rows;
}

// The pods that wait; the other rows are claims that no pod uses.
function waitingPods(shown) {
  return shown.waiting.filter((row) => row.kind === "Pod");
}

// How many pods wait and how many claims no pod uses, for the totals and the heading of what waits.
function waitingCounts() {
  const pods = waitingPods(state).length;
  const claims = state.waiting.length - pods;
  return { pods: counted(pods, "pod"), claims: claims ? `${counted(claims, "claim")} that no pod uses` : "" };
}

// What waits, by reason: rows that wait for the same thing have their reason once.
function drawWaiting(terms) {
  const rows = state.waiting.map((row) => {
    const since = age(row.since);
    return [row, element("div", { class: "line" }, element("strong", {}, `${row.kind} ${row.name}`), element("span", {}, row.asks), since && element("span", { class: "facts" }, "for ", since))];
  }).filter(([row, line]) => matches(terms, `${printed(line)} ${plain(row.reason)}`));
  const groups = new Map();
  for (const [row, line] of limited("waiting", rows, "row")) {
    if (!groups.has(row.reason)) groups.set(row.reason, element("li", {}, element("p", { class: "why" }, row.reason)));
    groups.get(row.reason).append(line);
  }
  const { pods, claims } = waitingCounts();
  byId("waiting-heading").textContent = state.waiting_is_known ? `Waiting: ${[pods, claims].filter(Boolean).join(", ")}` : "Waiting";
  byId("waiting-section").hidden = !state.waiting_is_known && state.waiting.length === 0;
  const list = byId("waiting");
  list.classList.toggle("warn", rows.length > 0);
  list.replaceChildren(...(rows.length ? groups.values() : [element("li", { class: "empty" }, state.waiting.length ? "Nothing that waits matches." : "Nothing waits.")]));
  byId("waiting-why").hidden = !rows.some(([row]) => row.kind === "Pod" && !row.node);
}

// What fits of a model, and the memory that is left to share.
function freeSets(free) {
  return [free.sets.map(listed).join("; or "), free.left ? `${gibibytes(free.left)} left to share` : ""].filter(Boolean).join("; ");
}

function drawFree() {
  byId("free-section").hidden = state.free.length === 0 || (state.nodes.length === 1 && state.free.every((free) => free.sets.length === 0 && !free.left));
  byId("free").replaceChildren(...state.free.map((free) => element("li", {}, element("div", { class: "line" },
    element("strong", {}, free.model || free.driver), element("span", {}, `${free.unused} of ${free.total} unused${free.closed ? ` (${free.closed} cordoned or not ready)` : ""}`), element("span", { class: "facts" }, free.driver)),
    freeSets(free) ? element("p", { class: "why" }, freeSets(free)) : free.unused ? null : element("p", { class: "why" }, "nothing more fits"))));
}

// Half to even, as the server writes the memory of a GPU.
const TENTHS = new Intl.NumberFormat("en", { maximumFractionDigits: 1, roundingMode: "halfEven", useGrouping: false });
function gibibytes(bytes) {
  return bytes ? `${TENTHS.format(bytes / 2 ** 30)} GiB` : "";
}

const TOTALS = {
  Namespace: (row) => row.name,
  Devices: (row) => listed(row.devices),
  Memory: (row) => [gibibytes(row.memory), row.not_counted ? `${devicesAndShares(row.not_counted)} not counted` : ""].filter(Boolean).join(", "),
  Bandwidth: (row) => row.bandwidth ? rate(row.bandwidth) : "",
  Claims: (row) => String(row.claims || ""),
  Waiting: (row) => String(row.waiting || ""),
};

// What each namespace has. Its name filters the page.
function drawNamespaces(terms) {
  byId("namespaces-section").hidden = state.namespaces.length === 0;
  // An unchanged table stays, so that its buttons keep the focus.
  const key = JSON.stringify([state.namespaces, shownAll.has("namespaces"), terms]);
  if (byId("namespaces").dataset.key === key) return;
  byId("namespaces").dataset.key = key;
  const columns = Object.keys(TOTALS).filter((name) => state.namespaces.some((row) => TOTALS[name](row)));
  byId("namespaces-head").replaceChildren(...columns.map((name) => element("th", { scope: "col" }, name)));
  const found = state.namespaces.filter((row) => matches(terms, plain(`${row.name}/`)));
  const rows = limited("namespaces", found, "namespace").map((row) => element("tr", {}, ...columns.map((name) => {
    const text = TOTALS[name](row);
    const button = name === "Namespace" ? element("button", { type: "button", class: "name", title: `show only ${text}` }, text) : null;
    button?.addEventListener("click", () => { byId("filter").value = `${text}/`; draw(); byId("filter").focus(); });
    return element("td", { "data-label": name, class: text ? null : "blank" }, button || element("span", { class: name === "Waiting" && text ? "badge warn" : null }, text));
  })));
  byId("namespaces").replaceChildren(...(rows.length ? rows : [element("tr", {}, element("td", { colspan: String(columns.length), class: "empty" }, "No namespace matches."))]));
}

const COLUMNS = {
  Claim: (row) => row.claim,
  Pod: (row) => row.pods.join(", "),
  State: (row) => row.state,
  Age: (row) => -Date.parse(row.since) || 0,
  Node: (row) => nodesOf(row).join(", "),
  Devices: (row) => row.devices.map((device) => device.kind + device.device).join(", "),
};

function drawHead(columns) {
  const head = byId("claims-head");
  if (head.dataset.columns !== String(columns)) {
    head.dataset.columns = String(columns);
    head.replaceChildren(...columns.map((name) => {
      const button = element("button", { type: "button" }, name);
      button.addEventListener("click", () => {
        sorted = { column: name, descending: sorted.column === name && !sorted.descending };
        draw();
      });
      return element("th", { scope: "col", "data-column": name }, button);
    }));
  }
  for (const cell of head.children) {
    if (cell.dataset.column === sorted.column) cell.setAttribute("aria-sort", sorted.descending ? "descending" : "ascending");
    else cell.removeAttribute("aria-sort");
  }
}

function nodesOf(row) {
  return [...new Set(row.devices.map((device) => device.node).filter(Boolean))];
}

// Names in a list, none of which breaks over two lines.
function whole(names) {
  return element("span", {}, ...names.flatMap((name, at) => [at ? ", " : "", element("span", { class: "nowrap" }, name)]));
}

function deviceParts(device) {
  const facts = [device.prepared ? "prepared" : "", device.admin ? "admin access" : "", device.request ? `request ${device.request}` : "", device.driver, device.share ? `share ${device.share}` : ""];
  const amounts = [device.bandwidth ? rate(device.bandwidth) : "", gibibytes(device.memory), ...Object.entries(device.consumed).map(([name, amount]) => `${name} ${amount}`)];
  return element("div", { class: "line" }, element("strong", { class: "nowrap" }, device.kind || "device"), element("span", { class: "device-name" }, device.device),
    element("span", { class: "nowrap" }, amounts.filter(Boolean).join(", ")), device.interface ? element("span", { class: "nowrap" }, inPod(device.interface)) : null, device.prepared === false ? element("span", { class: "badge bad nowrap" }, "not prepared") : null, element("span", { class: "facts" }, facts.filter(Boolean).join(" · ")));
}

// The devices of a claim: one as it is, several behind their sum, which opens for a filter.
function claimDevices(row, isOpen) {
  if (row.devices.length < 2) return row.devices.map(deviceParts);
  const counts = {};
  for (const device of row.devices) counts[device.kind || "device"] = (counts[device.kind || "device"] || 0) + 1;
  const made = element("details", {}, element("summary", {}, listed(counts)), ...row.devices.map(deviceParts));
  made.dataset.uid = row.uid;
  made.open = isOpen;
  return [made];
}

function claimRow(row, columns, open) {
  const content = {
    Claim: [coloured(element("span", { class: "swatch" }), row.claim), element("span", {}, ` ${row.claim}`)],
    Pod: [element("span", {}, row.pods.join(", "))],
    State: [element("span", { class: row.state === "waiting" || row.state === "deleting" ? "badge warn nowrap" : "nowrap" }, row.state)],
    Age: [age(row.since) || ""],
    Node: [whole(nodesOf(row))],
    Devices: [element("div", { class: "devices-of" }, ...claimDevices(row, open.has(row.uid)))],
  };
  return element("tr", {}, ...columns.map((name) => {
    const made = element("td", { "data-label": name, class: name === "Age" ? "nowrap" : null }, ...content[name]);
    if (!made.textContent) made.classList.add("blank");
    return made;
  }));
}

function drawClaims(terms) {
  const open = new Set([...document.querySelectorAll("#claims details[open]")].map((made) => made.dataset.uid));
  const asked = terms.join(" ");
  if (asked !== openedFor) {
    openedFor = asked;
    open.clear();
    if (asked) for (const row of state.claims) open.add(row.uid);
  }
  const columns = Object.keys(COLUMNS).filter((name) => !["Pod", "Age"].includes(name) || state.claims.some((row) => (name === "Pod" ? row.pods.length : row.since)));
  drawHead(columns);
  const by = COLUMNS[sorted.column];
  const listedRows = state.claims.filter((row) => terms.length === 0 || matches(terms, printed(claimRow(row, columns, open))));
  listedRows.sort((left, right) => {
    const [a, b] = [by(left), by(right)];
    const compared = typeof a === "number" ? a - b : a.localeCompare(b, undefined, { numeric: true });
    return sorted.descending ? -compared : compared;
  });
  const link = byId("to-claims");
  link.hidden = terms.length === 0;
  link.textContent = `${listedRows.length} of ${counted(state.claims.length, "claim")}`;
  const rows = limited("claims", listedRows, "claim").map((row) => claimRow(row, columns, open));
  byId("claims").replaceChildren(...(rows.length ? rows : [element("tr", {}, element("td", { colspan: String(columns.length), class: "empty" }, "No claim."))]));
}

function drawEvents(terms) {
  const rows = state.events.map((event) => element("li", {},
    element("span", { class: "facts" }, age(event.time) || "", " ago "), event.warning ? element("span", { class: "badge warn" }, "Warning") : "",
    ` ${event.reason} ${event.about}: ${event.message}${event.count > 1 ? ` (${event.count} times)` : ""}`)).filter((row) => matches(terms, printed(row)));
  byId("events-section").hidden = rows.length === 0;
  byId("events").replaceChildren(...rows.slice(0, 25));
}

function drawTotals() {
  const pools = state.nodes.flatMap((node) => node.pools);
  const gpus = pools.flatMap((pool) => pool.gpus);
  const nics = pools.flatMap((pool) => pool.nics);
  const others = pools.flatMap((pool) => pool.others);
  const unwell = unwellOf(pools);
  const noted = state.nodes.filter((node) => node.notes.length).length;
  const claims = new Set(state.claims.map((row) => row.uid)).size;
  const without = new Set(state.claims.filter((row) => !row.devices.length).map((row) => row.uid)).size;
  const down = pools.filter((pool) => pool.is_down).length;
  const waits = waitingCounts();
  const totals = state.waiting_is_known ? [["Waiting", waits.pods, waits.claims && ` ${waits.claims}`, waitingPods(state).length ? "warn" : ""]] : [];
  totals.push(["Unhealthy", counted(unwell, "device"), down ? ` ${counted(down, "driver")} down` : "", unwell || down ? "bad" : ""]);
  if (gpus.length) {
    const slices = gpus.reduce((sum, gpu) => sum + gpu.width, 0);
    const taken = gpus.reduce((sum, gpu) => sum + gpu.spans.reduce((part, span) => part + span.size, 0), 0);
    totals.push(["GPUs in use", `${gpus.filter((gpu) => gpu.spans.length).length} of ${gpus.length}`, ` ${taken} of ${slices} memory slices`, ""]);
  }
  if (nics.length) totals.push(["NIC bandwidth allocated", `${rate(nics.reduce((sum, nic) => sum + shared(nic), 0))} of ${rate(nics.reduce((sum, nic) => sum + nic.capacity, 0))}`, "", ""]);
  if (others.length) totals.push(["Whole devices in use", `${others.filter((device) => device.uses.length).length} of ${others.length}`, "", ""]);
  // Pods keep the devices of a driver that is down, but no slice says what these are.
  const lost = state.namespaces.reduce((sum, row) => sum + row.not_counted, 0);
  if (lost) totals.push(["Not counted", devicesAndShares(lost), " in use, without slices", "bad"]);
  totals.push(["Claims", String(claims), without ? ` ${without} without devices` : "", ""]);
  totals.push(["Nodes", String(state.nodes.filter((node) => node.name).length), noted ? ` ${noted} cordoned or not ready` : "", ""]);
  byId("totals").replaceChildren(...totals.map(([name, value, more, kind]) => element("div", {}, element("dt", {}, name), element("dd", { class: kind || null }, value, more ? element("small", {}, more) : ""))));
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
  const terms = plain(byId("filter").value).split(/\s+/).filter(Boolean);
  byId("title").textContent = state.title;
  for (const id of ["totals-section", "main"]) byId(id).hidden = state.reading.length > 0;
  document.title = `${waitingPods(state).length ? `(${waitingPods(state).length} waiting) ` : ""}${state.title || "drakit"} · drakit dashboard`;
  drawTotals();
  drawWaiting(terms);
  drawFree();
  drawNamespaces(terms);
  drawNodes({ terms, unwell: byId("unhealthy").checked, unused: byId("unused").checked });
  drawClaims(terms);
  drawEvents(terms);
}

// What the page shows is grey while it is not current.
function say(text, isOld, isStale) {
  const status = byId("status");
  if (status.textContent !== text) status.textContent = text;
  status.classList.toggle("old", isOld);
  document.body.classList.toggle("stale", isStale);
}

// A node that did not change stays the same object, so that its card and words are kept.
function kept(answer) {
  const before = new Map((state?.nodes || []).map((node) => [node.name, node]));
  shortNames = withoutDomains(answer.nodes);
  const nodes = answer.nodes.map((node) => {
    const old = before.get(node.name);
    return old && JSON.stringify(old) === JSON.stringify(node) ? old : node;
  });
  return { ...answer, nodes };
}

async function read() {
  try {
    const headers = { Authorization: `Bearer ${sessionStorage.getItem("token") || ""}`, ...(etag ? { "If-None-Match": etag } : {}) };
    const answer = await fetch("/state", { headers, cache: "no-store" });
    if (answer.status === 401) return say("Open the address that drakit dashboard printed: it has the token.", true, true);
    if (!answer.ok && answer.status !== 304) throw new Error(`status ${answer.status}`);
    const isNew = answer.status !== 304;
    if (isNew) {
      state = kept(await answer.json());
      etag = answer.headers.get("ETag") || "";
    }
    answeredAt = Date.now();
    measure();
    if (isNew || rates.size) draw();
    say(state.problem || (state.reading.length ? `Reading ${state.reading.join(", ")} ...` : "Live"), Boolean(state.problem), state.is_old);
    byId("note").textContent = state.note;
  } catch (error) {
    const since = answeredAt ? `for ${Math.round((Date.now() - answeredAt) / 1000)} s` : "";
    say(`No answer ${since}: is drakit dashboard still running?`, true, true);
  }
}

byId("filters").addEventListener("submit", (event) => event.preventDefault());
byId("filter").addEventListener("input", draw);
for (const id of ["unhealthy", "unused", "order"]) byId(id).addEventListener("change", draw);
for (const name of Object.keys(ROWS)) {
  byId(`${name}-all`).addEventListener("click", () => {
    if (!shownAll.delete(name)) shownAll.add(name);
    draw();
  });
}
dark.addEventListener("change", draw);
read();
setInterval(() => { if (!document.hidden) { read(); tick(); } }, EVERY_MS);
document.addEventListener("visibilitychange", () => { if (!document.hidden) read(); });

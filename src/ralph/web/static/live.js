// What the agents say and do, as cards per event: tools folded, thoughts folded, silent tool calls together, turns side by side.
import { html, agentName, clock, count, Empty, ErrorNote, Icon, money, Note, Prose, roleName, span, useEffect, useMemo, useRef, useState } from './lib.js';
import { get } from './api.js';

const MAX_ITEMS = 300;

export function LiveTab({ view, outputs, now, selected }) {
  const running = view.turns.filter((turn) => turn.end === null);
  const chosen = view.turns.find((turn) => turn.number === selected);
  let turns = chosen ? [chosen] : running.slice(-4);
  if (!turns.length) turns = view.turns.slice(-1);
  if (!turns.length) {
    return html`<section class="pane" aria-label="Live"><div class="box"><${Empty} title="No turn yet">
      ${view.checking.length ? 'The engine runs the checks first: the baseline.' : 'The first turn shows here as it works.'}<//></div></section>`;
  }
  return html`<section class="pane" aria-label="Live"><div class=${turns.length > 1 ? 'turns' : ''}>${turns.map((turn) =>
    html`<${Turn} key=${turn.number} view=${view} turn=${turn} live=${outputs[turn.number]} now=${now} />`)}</div></section>`;
}

function Turn({ view, turn, live, now }) {
  const { events, error, more } = useTurn(view.key, turn, live);
  const [search, setSearch] = useState('');
  const items = useMemo(() => arrange(events.filter((event) => !search
    || event.text.toLowerCase().includes(search.toLowerCase()))), [events, search]);
  const [isFollowing, setFollowing] = useState(true);
  const [all, setAll] = useState(false);
  const [isRaw, setIsRaw] = useState(false);
  const list = useRef(null);
  const seen = useRef(0);
  const isRunning = turn.end === null;
  useEffect(() => {
    if (isFollowing && isRunning && list.current) { list.current.scrollTop = list.current.scrollHeight; seen.current = items.length; }
  }, [items.length, isFollowing]);
  const scroll = () => {
    const node = list.current;
    setFollowing(node.scrollHeight - node.scrollTop - node.clientHeight < 40);
  };
  const task = view.tasks.find((one) => one.id === turn.task);
  const title = task ? `${task.id} ${task.title}` : roleName(turn.role);
  const shown = all ? items : items.slice(-MAX_ITEMS);
  const cost = turn.usage.cost ?? turn.activity?.usage.cost;
  return html`<article class="box turn" data-turn=${turn.number}><header>
      <${Icon} name=${isRunning ? 'work' : turn.end === 'finished' ? 'check' : 'failo'} tone=${isRunning ? 'work'
  : turn.end === 'finished' ? 'pass' : 'fail'} label=${isRunning ? 'running' : view.display.turn_ends[turn.end]} />
      <h3 class="cut">${title}</h3><span class="dim sm now cut agent only-wide" title=${turn.agent}>${agentName(turn.agent)}${turn.place ? ` on ${turn.place}` : ''}</span><span class="grow"></span>
      <label class="field sm only-wide"><span class="sr">Search this turn</span><input placeholder="Search" value=${search}
        onInput=${(event) => setSearch(event.target.value)} /></label>
      <button class="btn sm quiet" aria-pressed=${isRaw} onClick=${() => setIsRaw(!isRaw)}>Raw</button>
      <span class="sm dim now">turn ${turn.number}</span><span class="sm dimmer now">${span((turn.ended_at || now) - turn.started_at)}
      ${cost ? ` · ${money(cost)}` : ''}</span></header>
    ${isRaw ? html`<${RawOutput} view=${view} turn=${turn} changes=${events.length} />` : html`${error && html`<${ErrorNote} error=${error} />`}
    ${!events.length && !error && html`<${Empty} title=${isRunning ? 'The agent has said nothing yet' : 'The agent said nothing'}>
      ${isRunning ? 'What it says and does shows here.' : turn.error}<//>`}
    ${shown.length < items.length && html`<p class="earlier"><button class="btn sm" onClick=${() => setAll(true)}>Show
      ${items.length - shown.length} earlier</button></p>`}
    <ul class="events" ref=${list} onScroll=${scroll} tabindex="0" aria-label=${`Events of turn ${turn.number}`}>
      ${shown.map((item) => html`<${Item} key=${item.first} item=${item} isLast=${isRunning && item === items.at(-1)} />`)}
      ${more && html`<li class="ev"><button class="btn sm" onClick=${more}>Load more</button></li>`}
      ${!isRunning && html`<li class="ev"><div class="h"><${Icon} name=${turn.end === 'finished' ? 'check' : 'failo'} tone=${turn.end
  === 'finished' ? 'pass' : 'fail'} /><span class="dim">The turn ended: ${view.display.turn_ends[turn.end]}${turn.files
  ? `, ${count(turn.files, 'file')} changed` : ''}</span>${turn.files > 0 && html`<span class="dstat"><span class="plus">+${turn.added}</span>
        <span class="minus">−${turn.removed}</span></span>`}<span class="time">${clock(turn.ended_at, true)}</span></div>
        ${(turn.error || turn.summary) && html`<p class="sm dim below">${turn.error || turn.summary}</p>`}</li>`}</ul>
    ${isRunning && !isFollowing && html`<${Note} icon="pause">Follow is off. <button class="linkish"
      onClick=${() => setFollowing(true)}>Go to the newest</button>${items.length > seen.current
  ? `, ${items.length - seen.current} more` : ''}.<//>`}`}</article>`;
}

// What the program of the turn printed, with its colors. The parts are text, so nothing in them runs.
function RawOutput({ view, turn, changes }) {
  const [found, setFound] = useState({ data: null, error: null });
  useEffect(() => {
    get(`/api/runs/${encodeURIComponent(view.key)}/turns/${turn.number}/raw`)
      .then((data) => setFound({ data, error: null }), (error) => setFound({ data: null, error }));
  }, [turn.number, turn.end, changes]);
  if (found.error) return html`<${ErrorNote} error=${found.error} />`;
  if (!found.data) return null;
  const shown = ['stdout', 'stderr'].filter((name) => found.data[name].parts.length);
  if (!shown.length) return html`<${Empty} title=${turn.end === null ? 'The program has printed nothing yet' : 'The program printed nothing'} />`;
  return shown.map((name) => html`<section key=${name} class="in raw" aria-label=${name}><p class="sm dim">${name}${found.data[name].left_out > 0
    ? `, the end of it: ${Math.ceil(found.data[name].left_out / 1024)} KB are left out` : ''}</p>
    <pre class="out" tabindex="0">${found.data[name].parts.map(([style, text]) => html`<i class=${style}>${text}</i>`)}</pre></section>`);
}

// Fetch what is there, then add what the stream brings. Each event counts once, by its number.
function useTurn(key, turn, live) {
  const [stored, setStored] = useState([]);
  const [error, setError] = useState(null);
  const [total, setTotal] = useState(0);
  const isEnded = turn.end !== null;
  const load = async (from) => {
    try {
      const found = await get(`/api/runs/${encodeURIComponent(key)}/turns/${turn.number}/events?from=${from}`);
      setStored((before) => merge(before, found.events));
      setTotal(found.total);
      setError(null);
    } catch (problem) { setError(problem); }
  };
  useEffect(() => { load(1); }, [turn.number]);
  const known = merge(stored, live || []);
  const last = contiguous(known);
  useEffect(() => { if (isEnded) load(last + 1); }, [isEnded, turn.number]);
  useEffect(() => { if (live?.length && live[0].index > last + 1) load(last + 1); }, [live?.length]);
  return { events: known, error, more: last < total ? () => load(last + 1) : null };
}

function merge(first, second) {
  const byIndex = new Map();
  for (const event of first) byIndex.set(event.index, event);
  for (const event of second) byIndex.set(event.index, event);
  return [...byIndex.values()].sort((a, b) => a.index - b.index);
}

function contiguous(events) {
  let last = 0;
  for (const event of events) { if (event.index !== last + 1) break; last = event.index; }
  return last;
}

// Tool calls with their results, and three or more of them in a row without words as one item.
function arrange(events) {
  const items = [];
  let tools = [];
  const flush = () => {
    if (tools.length >= 3) items.push({ kind: 'tools', first: tools[0].first, tools });
    else items.push(...tools);
    tools = [];
  };
  for (const event of events) {
    if (['usage', 'session'].includes(event.kind)) continue;
    if (event.kind === 'tool') {
      tools.push({ kind: 'tool', first: event.index, event, result: null });
    } else if (event.kind === 'tool-result') {
      const open = [...tools].reverse().find((tool) => !tool.result);
      if (open) {
        open.result = event;
        if (event.is_error) flush();
      } else items.push({ kind: 'tool', first: event.index, event: { ...event, text: 'Result' }, result: event });
    } else {
      flush();
      items.push({ kind: event.kind, first: event.index, event });
    }
  }
  flush();
  return items;
}

const ICONS = { text: 'note', thinking: 'think', error: 'failo', warning: 'warn', limit: 'wait', retry: 'wait', denied: 'stop',
  received: 'steer', progress: 'note', result: 'check' };

function Item({ item, isLast = false }) {
  const [open, setOpen] = useState(item.kind === 'tool' && Boolean(item.result?.is_error));
  if (item.kind === 'tools' && !open) {
    return html`<li class="ev"><button class="h fold" aria-expanded="false" onClick=${() => setOpen(true)}><${Icon} name="right" />
      <span class="dimmer">${item.tools.length} tool calls without words: ${item.tools.slice(0, 3).map((tool) => firstWords(tool.event.text)).join(', ')}${item.tools.length > 3 ? ', …' : ''}</span>
      <${Time} at=${item.tools.at(-1).event.at} /></button></li>`;
  }
  if (item.kind === 'tools') return item.tools.map((tool) => html`<${Item} key=${tool.first} item=${tool} />`);
  if (item.kind === 'tool') {
    const text = item.event.text;
    const hasMore = Boolean(item.result?.text) || text.includes('\n') || text.length > 120;
    return html`<li class="ev tool"><button class="h fold" aria-expanded=${open} disabled=${!hasMore} onClick=${() => setOpen(!open)}>
        <${Icon} name=${toolIcon(text)} /><code class=${hasMore ? 'cut' : ''}>${text.split('\n')[0]}</code>
        ${item.result?.is_error && html`<${Icon} name="failo" tone="fail" label="failed" />`}
        ${!item.result && isLast && html`<span class="dimmer sm now">running</span>`}<${Time} at=${item.event.at} /></button>
      ${open && html`<pre class="out" tabindex="0">${text.includes('\n') || text.length > 120 ? `${text}\n\n` : ''}${item.result?.text || ''}${item.result?.more
    ? `\n… ${item.result.more} characters left out` : ''}</pre>`}</li>`;
  }
  const { event } = item;
  if (item.kind === 'thinking' && !open) {
    return html`<li class="ev"><button class="h fold" aria-expanded="false" onClick=${() => setOpen(true)}><${Icon} name="think" />
      <${Icon} name="right" /><span class="dimmer cut">Thought: ${event.text}</span><${Time} at=${event.at} /></button></li>`;
  }
  if (item.kind === 'result') return null;
  const tone = ['error', 'denied'].includes(item.kind) ? 'fail' : ['warning', 'limit'].includes(item.kind) ? 'need' : '';
  const text = item.kind === 'received' ? `Message received${event.means ? `, ${event.means}` : ''}` : event.text;
  return html`<li class=${`ev ${item.kind}`}><div class="h"><${Icon} name=${ICONS[item.kind] || 'none'} tone=${tone} />
    <span class="words">${item.kind === 'received' ? html`<b>${text}</b>` : html`<${Prose} text=${text} />`}</span><${Time} at=${event.at} /></div></li>`;
}

function Time({ at }) {
  return at ? html`<span class="time">${clock(at, true)}</span>` : html`<span class="time"></span>`;
}

function firstWords(text) {
  return text.split('\n')[0].slice(0, 40);
}

function toolIcon(text) {
  if (/^(write|edit|patch|multiedit|apply)/i.test(text)) return 'edit';
  if (/^(read|open|view|glob|grep|ls)/i.test(text)) return 'file';
  return 'term';
}


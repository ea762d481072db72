// The inbox and the list of runs: what needs the user first, then groups. Updates never move what the user points at.
import { html, agentName, Bar, count, Empty, ErrorNote, firstLine, Icon, Loading, money, OfflineNote, Prose, span, spentMoney, State, useClock, useEffect, useKeys,
  useLayoutEffect, useMedia, useMemo, useRef, useState } from './lib.js';
import { act, getTagged, stream } from './api.js';
import { cardId, NeedCard, useCards } from './needs.js';
import { SelectBar, useSelection } from './select.js';

const MAX_CARDS = 4;

export function Inbox({ me, project, isInbox, onLost, onNeeds, onSay }) {
  const now = useClock(10);
  const [text, setText] = useState(new URLSearchParams(location.search).get('q') || '');
  const [query, setQuery] = useState(text);
  const [byProject, setByProject] = useState(false);
  const list = useRows([project && `project:${project}`, query].filter(Boolean).join(' '), onLost);
  const area = useRef(null);
  const field = useRef(null);
  const selection = useSelection(list.rows);
  const isMine = me.role === 'admin' && !me.read_only;
  useEffect(() => { const id = setTimeout(() => setQuery(text), 250); return () => clearTimeout(id); }, [text]);
  useEffect(() => { onNeeds(list.needs); }, [list.needs]);
  useEffect(() => { if (list.data && list.needs) onSay(`${list.needs} need you`); }, [list.needs]);

  const moveTo = (step) => {
    const stops = [...area.current.querySelectorAll('.card[tabindex], tr[tabindex]')];
    const at = stops.indexOf(document.activeElement);
    stops[Math.max(0, Math.min(stops.length - 1, at + step))]?.focus();
  };
  useKeys({
    '/': ['Filter runs', () => field.current.focus()],
    w: ['Next run that needs you', () => nextNeed(area.current)],
    j: ['Next card or run', () => moveTo(1)], k: ['Previous card or run', () => moveTo(-1)],
    Enter: ['Open the focused run', (event) => event.target.closest?.('tr[tabindex]')?.querySelector('a')?.click()],
    ...(isMine && { s: ['Select several runs', selection.toggleMode] }),
    ...(selection.isOn && { x: ['Select the focused run', (event) => selection.toggle(event.target.closest?.('tr[data-key]')?.dataset.key)] }),
  }, 'Inbox and runs');

  const rows = list.rows;
  const isOpen = ({ row, id }) => !byKey.has(row.key) || byKey.get(row.key).needs.some((need) => cardId(row, need) === id);
  const byKey = new Map(rows.map((row) => [row.key, row]));
  const hasCards = isInbox && !selection.isOn;
  const [cards, keepAnswered] = useCards(hasCards ? chooseCards(rows) : [], isOpen, `${hasCards} ${project} ${query}`);
  const shown = new Set(cards.filter((card) => !card.goneAt).map((card) => card.row.key));
  const rest = rows.filter((row) => !shown.has(row.key));
  return html`<main class="page" id="main" ref=${area} onPointerEnter=${() => list.hold(true)}
      onPointerLeave=${() => list.hold(false)}>
    <h1 class="sr">${isInbox ? 'Inbox' : 'Runs'}</h1>
    <div class="bar-top"><label class="field filter"><${Icon} name="search" /><span class="sr">Filter runs</span>
      <input ref=${field} value=${text} placeholder="state:stuck agent:codex cost>2" spellcheck="false"
        onInput=${(event) => setText(event.target.value)}
        onKeyDown=${(event) => { if (event.key === 'Escape') { setText(''); event.target.blur(); } }} /><kbd>/</kbd></label>
      <div class="seg only-wide" role="group" aria-label="Group"><button aria-pressed=${!byProject}
        onClick=${() => setByProject(false)}>By state</button><button aria-pressed=${byProject}
        onClick=${() => setByProject(true)}>By project</button></div>
      ${isMine && rows.length > 0 && html`<button class="btn" aria-pressed=${selection.isOn} onClick=${selection.toggleMode}>${selection.isOn ? 'End selection' : 'Select'} <kbd>s</kbd></button>`}
      <span class="grow"></span>
      <${Isolation} rows=${rows} /><span class="dim sm only-wide">Next run that needs you <kbd>w</kbd></span></div>
    ${list.error && (list.error.status === 400
    ? html`<p class="sm c-fail row filter-error" role="alert"><${Icon} name="failo" />${list.error.what}: ${list.error.todo}</p>`
    : html`<${ErrorNote} error=${list.error} onRetry=${list.reload} />`)}
    ${list.offline && html`<${OfflineNote} since=${list.offline} />`}
    ${list.pending > 0 && html`<p class="note"><${Icon} name="inbox" tone="idle" /><span>The list has changed.${' '}
      <button class="linkish" onClick=${list.apply}>Show the new order</button></span></p>`}
    ${!list.data && !list.error && html`<${Loading} lines=${6} />`}
    ${list.data && !rows.length && html`<${NoRuns} isFiltered=${Boolean(query || project)} />`}
    ${isInbox && cards.length > 0 && html`<div class="sec"><h2>Needs you</h2><span class="count need">${list.needs}</span>
      <span class="sm dimmer only-wide">${me.groups['needs you'][1]}</span></div>
      <section class="cards" aria-label="Needs you">${cards.map(({ row, need, n, id, goneAt }) => html`<${NeedCard} key=${id} id=${id}
        row=${row} need=${need} label=${row.need_labels[n]} now=${now} me=${me} isOver=${Boolean(goneAt)} onDone=${(said) => { keepAnswered(id); onSay(said); }} />`)}</section>`}
    ${isInbox && !selection.isOn && list.data && rows.length > 0 && !cards.length && html`<section class="box"><${Empty} title="Nothing needs you">
      ${list.data.counts.working ? `${list.data.counts.working} working.` : 'No run is working.'} The next one that needs you shows
      here.<//></section>`}
    ${rest.length > 0 && html`<${Table} rows=${rest} byProject=${byProject} groups=${me.groups} counts=${list.data.counts}
      now=${now} more=${list.more} me=${me} hasCards=${cards.length > 0} selection=${selection} />`}
    ${selection.isOn && html`<${SelectBar} selection=${selection} rows=${rows} onSay=${onSay} onDone=${list.reload} />`}</main>`;
}

// A run that is over can do no more harm, so only those that work count.
function Isolation({ rows }) {
  const open = rows.filter((row) => row.alive && row.sandbox.startsWith('not isolated'));
  if (!open.length) return null;
  return html`<span class="sm row now" title=${open[0].sandbox}><${Icon} name="warn" tone="need" />${count(open.length, 'run')} not isolated</span>`;
}

function chooseCards(rows) {
  const cards = [];
  for (const row of rows) {
    if (row.group !== 'needs you' || row.snoozed_until) continue;
    const isAsking = row.attention === 0;
    if (!isAsking && cards.length >= MAX_CARDS) continue;
    if (cards.length >= 3 * MAX_CARDS) break;
    row.needs.slice(0, isAsking ? 3 : 1).forEach((need, n) => cards.push({ row, need, n, id: cardId(row, need) }));
  }
  return cards;
}

function nextNeed(area) {
  const cards = [...(area?.querySelectorAll('.card[tabindex]') || [])];
  const next = cards[(cards.indexOf(document.activeElement) + 1) % cards.length];
  next?.focus();
  next?.scrollIntoView({ block: 'nearest' });
}

function NoRuns({ isFiltered }) {
  if (isFiltered) return html`<section class="box"><${Empty} title="No run matches">Clear the filter to see all of them.<//></section>`;
  return html`<section class="box"><${Empty} title="No runs yet">Start one in a terminal:
    <p class="first"><code>ralph loop "Fix the failing tests" --until 'tests pass'</code></p><//></section>`;
}

function titleOf(name, groups, hasCards) {
  if (name === 'needs you' && hasCards) return 'Also needs you';
  return groups[name]?.[0] || name;
}

function Table({ rows, byProject, groups, counts, now, more, me, hasCards, selection }) {
  const sections = useMemo(() => {
    const found = new Map();
    for (const row of rows) {
      const name = byProject ? row.project_name : row.group;
      if (!found.has(name)) found.set(name, []);
      found.get(name).push(row);
    }
    return [...found];
  }, [rows, byProject]);
  const showsProject = !byProject && new Set(rows.map((row) => row.project)).size > 1;
  const [closed, setClosed] = useState({});
  // The headline needs the room. The page of the run shows the branch, too.
  const hasBranch = useMedia('(min-width: 1440px)');
  return html`<table class="runs"><caption class="sr">Runs</caption>
    <colgroup><col class="c1" /><col /><col class="c3 only-wide" /><col class="c4 only-wide" /><col class="c5 only-wide" />
      <col class="c6 only-wide" />${hasBranch && html`<col class="c7" />`}<col class="c8" /></colgroup>
    <thead class="only-wide"><tr><th>State</th><th>Run and what is happening</th><th class="num">Iteration</th><th class="num">Checks</th>
      <th class="cost-col">Cost</th><th>Agent</th>${hasBranch && html`<th>Branch</th>`}<th class="num">Age</th></tr></thead>
    ${sections.map(([name, members]) => html`<tbody key=${name}><tr class="g"><td colspan=${hasBranch ? 8 : 7}><span class="row">
      <button class="linkish plain row" aria-expanded=${!closed[name]}
        onClick=${() => setClosed({ ...closed, [name]: !closed[name] })}><${Icon} name=${closed[name] ? 'right' : 'down'} tone="idle" />
        ${byProject ? name : titleOf(name, groups, hasCards)}</button>
      <span class="count">${byProject || name === 'needs you' ? members.length : counts[name] ?? members.length}</span><span class="grow"></span>
      <span class="sm dimmer plainweight only-wide">${byProject ? '' : groups[name]?.[1]}</span></span></td></tr>
      ${!closed[name] && members.map((row) => html`<${Row} key=${row.key} row=${row} now=${now} me=${me} selection=${selection} hasBranch=${hasBranch} showsProject=${showsProject} />`)}</tbody>`)}
  </table>${more && html`<p class="more"><button class="btn" onClick=${more}>Show 100 more</button></p>`}`;
}

function Row({ row, now, me, selection, hasBranch, showsProject }) {
  const isOneLine = row.group === 'done';
  const title = firstLine(row.task) || row.id;
  const wake = () => act(row.key, 'snooze', { minutes: 0 });
  const head = html`<${Prose} text=${row.reasons[0] || row.headline} />`;
  const limit = row.cost_limit;
  const cost = row.spent.turns && row.spent.unpriced_turns === row.spent.turns ? null : row.spent.cost;
  const isChosen = selection.isOn && selection.keys.has(row.key);
  return html`<tr tabindex="0" data-run=${row.id} data-key=${row.key} class=${isChosen ? 'sel' : ''}><td>${selection.isOn
    ? html`<label class="row"><input type="checkbox" checked=${isChosen} aria-label=${`Select ${title}`} onChange=${() => selection.toggle(row.key)} /><${State} label=${row.label} /></label>`
    : html`<${State} label=${row.label} />`}</td>
    <td>${isOneLine
    ? html`<a href=${`/r/${row.key}`}><span class="title in">${title}</span></a>${' '}<span class="dim sm" title=${row.headline}>${head}</span>`
    : html`<a class="title" href=${`/r/${row.key}`}>${title}</a><span class="head2" title=${row.headline}>${head}</span>`}
      ${showsProject && html`<span class="sm dimmer project">${isOneLine ? ' · ' : ''}${row.project_name}</span>`}
      ${row.snoozed_until && html`<span class="sm dimmer">snoozed until ${new Date(row.snoozed_until * 1000).toTimeString().slice(0, 5)}
        ${me.role === 'admin' && html` <button class="linkish" onClick=${wake}>End snooze</button>`}</span>`}</td>
    <td class="num only-wide">${row.iteration ? `${row.iteration}${row.max_iterations ? ` / ${row.max_iterations}` : ''}` : ''}</td>
    <td class="num only-wide">${row.checks_total ? `${row.checks_passed} / ${row.checks_total}` : ''}</td>
    <td class="cost-col only-wide">${cost === null ? html`<span class="sm dimmer">unknown</span>` : isOneLine || !limit
    ? html`<span class="sm">${row.spent.turns ? spentMoney(row.spent, cost) : ''}</span>`
    : html`<div class="cost"><span class="v"><span>${spentMoney(row.spent, cost)}</span><span class="dimmer">of ${money(limit)}</span></span>
        <${Bar} share=${limit ? cost / limit : 0} /></div>`}</td>
    <td class="dim only-wide" title=${row.agent}>${agentName(row.agent)}</td>${hasBranch && html`<td class="mono dim">${row.branch}</td>`}
    <td class="num dim">${span(now - (row.created_at || row.since || now))}</td></tr>`;
}

// The rows, kept up to date by the stream. While the user points at the list, or has the focus in it, the order stays.
function useRows(query, onLost) {
  const [data, setData] = useState(null);
  const [error, setError] = useState(null);
  const [offline, setOffline] = useState('');
  const [pages, setPages] = useState(1);
  const [order, setOrder] = useState([]);
  const [pending, setPending] = useState(0);
  const held = useRef(false);
  const timer = useRef(0);
  const loads = useRef({ asked: 0, shown: 0, wanted: '' });
  const wanted = `${pages} ${query}`;
  loads.current.wanted = wanted;

  const load = async () => {
    loads.current.asked += 1;
    const number = loads.current.asked;
    // Answers can overtake each other, and the user may have typed another filter since.
    const isOld = () => number < loads.current.shown || loads.current.wanted !== wanted;
    try {
      let all = null;
      let cursor = 0;
      for (let page = 0; page < pages && cursor !== null; page += 1) {
        const found = await getTagged(`/api/runs?q=${encodeURIComponent(query)}&cursor=${cursor}`);
        all = all ? { ...found, rows: [...all.rows, ...found.rows] } : found;
        cursor = found.cursor;
      }
      if (isOld()) return;
      loads.current.shown = number;
      setData(all);
      setError(null);
    } catch (problem) {
      if (isOld()) return;
      onLost(problem);
      setError(problem);
    }
  };
  useEffect(() => { load(); }, [query, pages]);
  useEffect(() => {
    const later = () => { clearTimeout(timer.current); timer.current = setTimeout(load, 150); };
    const end = stream('runs=1', {
      onEvent: (kind, event) => { if (kind !== 'start' || event.gap) later(); },
      onState: (state) => {
        if (state.error) onLost(state.error);
        setOffline((before) => (state.connected ? '' : before || new Date().toTimeString().slice(0, 8)));
      },
    });
    return () => { end(); clearTimeout(timer.current); };
  }, [query, pages]);

  const keys = (data?.rows || []).map((row) => row.key).join('\n');
  useLayoutEffect(() => {
    const fresh = keys ? keys.split('\n') : [];
    const isBusy = held.current || document.activeElement?.closest?.('.cards, .runs');
    if (!order.length || !isBusy) { setOrder(fresh); setPending(0); return; }
    const same = fresh.filter((key) => order.includes(key)).join() === order.filter((key) => fresh.includes(key)).join();
    const added = fresh.filter((key) => !order.includes(key));
    setPending(same ? 0 : 1);
    if (added.length) setOrder([...order, ...added]);
  }, [keys]);

  const byKey = new Map((data?.rows || []).map((row) => [row.key, row]));
  const rows = order.map((key) => byKey.get(key)).filter(Boolean);
  return {
    data, error, offline, rows: rows.length || !data ? rows : data.rows, pending, reload: load,
    needs: (data?.rows || []).filter((row) => row.group === 'needs you' && !row.snoozed_until).length,
    apply: () => { setOrder(keys.split('\n')); setPending(0); },
    hold: (value) => { held.current = value; },
    more: data && data.cursor !== null ? () => setPages(pages + 1) : null,
  };
}

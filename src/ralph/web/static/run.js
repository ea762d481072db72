// The page of one run: headline, limits, actions, the work on the left, tabs.
import { html, agentName, Badge, Bar, clock, CopyButton, count, ErrorNote, firstLine, Icon, Loading, money, Note, OfflineNote, Prose, roleName, sentence, span, spentMoney, tokens, useClock, useEffect,
  useKeys, useLayoutEffect, useRef, useShort, useState } from './lib.js';
import { act, get, stream } from './api.js';
import { navigate } from './app.js';
import { ChecksTab, columnsOf, labelOf, pointAt } from './checks.js';
import { DiffTab } from './diff.js';
import { LiveTab } from './live.js';
import { cardId, NeedCard, useCards } from './needs.js';
import { Composer, SignalList, SignalsTab } from './signals.js';

const KEPT_OUTPUTS = 2000;

export function RunPage({ id, tab, me, onLost, onSay }) {
  const now = useClock(5);
  const { view, error, outputs, offline, gone, reload } = useRun(id, onLost);
  const [turn, setTurn] = useState(0);
  const [diffTurn, setDiffTurn] = useState('');
  const [iteration, setIteration] = useState(null);
  const [panel, setPanel] = useState('');
  const [problem, setProblem] = useState(null);
  const composer = useRef(null);
  const isMine = me.role === 'admin' && !me.read_only && !gone;
  const current = tab || (view && !view.alive ? 'checks' : 'live');
  // On a phone, the cards would push what is reviewed off the screen.
  const isReview = ['diff', 'signals'].includes(current);
  const open = (name) => navigate(`/r/${id}/${name}`);
  useEffect(() => { if (view) document.title = `${firstLine(view.run.task)} · Ralph`; }, [view?.run.task]);
  useEffect(() => { if (view) onSay(`${view.display.label[1]}: ${view.headline}`); }, [view?.display.label[1]]);

  const send = async (action, body) => {
    setProblem(null);
    try {
      const done = await act(id, action, body);
      setPanel('');
      if (done.landed === false) setProblem({ what: 'The work has not landed', todo: describeLanding(done) });
      reload();
    } catch (failed) { if (failed.code !== 'cancelled') setProblem({ what: failed.what || failed.message, where: failed.where, todo: failed.todo }); }
  };
  const [steers, setSteers] = useState(0);
  useLayoutEffect(() => { if (steers) composer.current?.focus(); }, [steers]);
  const steer = () => {
    if (!composer.current?.offsetParent) open('signals');
    setSteers(steers + 1);
  };
  const step = (by) => {
    const numbers = view.turns.map((one) => one.number);
    const at = turn ? numbers.indexOf(turn) : numbers.length - 1;
    setTurn(numbers[Math.max(0, Math.min(numbers.length - 1, at + by))] || 0);
    open('live');
  };
  const tabs = ['live', 'checks', 'diff', 'signals'];
  const canPause = isMine && view?.alive;
  const keys = {
    ':': ['Steer', steer], '[': ['Previous turn', () => step(-1)], ']': ['Next turn', () => step(1)],
    w: ['Go to what needs you', () => document.querySelector('.card[tabindex]')?.focus()],
    ...(canPause && { p: ['Pause, or do not pause', () => send('signals', { type: view.paused ? 'RESUME' : 'PAUSE' })] }),
  };
  tabs.forEach((name, n) => { keys[String(n + 1)] = [`Show ${name}`, () => open(name)]; });
  useKeys(view ? keys : {}, 'This run');
  const row = view && { ...view, id: view.run.id, task: view.run.task, project: view.run.project };
  const openCards = view ? view.needs.slice(0, 4).map((need, n) => ({ row, need, n, id: cardId(row, need), label: view.display.need_labels[n] })) : [];
  const [cards, keepAnswered] = useCards(openCards, (card) => view.needs.some((need) => cardId(row, need) === card.id), id);

  if (error && !view) return html`<main class="page" id="main"><${ErrorNote} error=${error} onRetry=${reload} /><p class="more"><a class="btn" href="/">Inbox</a></p></main>`;
  if (!view) return html`<main class="page" id="main"><${Loading} lines=${6} /></main>`;
  const side = html`<aside class="pane side r only-wide" aria-label="Signals"><div class="sec"><h2>Signals</h2><span class="count">${view.signals.length}</span>
      <span class="grow"></span><a class="link sm" href=${`/r/${id}/signals`}>All</a></div>
    <${Composer} view=${view} me=${me} composer=${composer} onSaid=${reload} /><${SignalList} view=${view} now=${now} most=${6} /></aside>`;
  return html`<${Head} view=${view} now=${now} id=${id} tab=${current} isMine=${isMine} panel=${panel} setPanel=${setPanel} send=${send} steer=${steer} />
    ${(problem || offline || gone || view.doubt || cards.length > 0) && html`<div class="strip">
      ${problem && html`<${ErrorNote} error=${problem} />`}
      ${gone && html`<${Note} kind="need"><b>The run was removed.</b> This is its last known state. <a class="link" href="/">Inbox</a><//>`}
      ${offline && !gone && html`<${OfflineNote} since=${offline} />`}
      ${view.doubt && html`<${Note} kind="need"><b>Ralph cannot verify this run:</b> ${view.doubt}.<//>`}
      ${!gone && isReview && view.needs.length > 0 && html`<a class="note need only-phone" href=${`/r/${id}/${view.alive ? 'live' : 'checks'}`}>
        <${Icon} name=${view.display.need_labels[0][0]} tone="need" /><span><b>${view.display.need_labels[0][1]}.</b> <${Prose} text=${sentence(firstLine(view.needs[0].text))} /></span></a>`}
      ${!gone && html`<div class=${`needs ${isReview ? 'only-wide' : ''}`}>${cards.map(({ need, label, id: card, goneAt }) => html`<${NeedCard} key=${card} id=${card} row=${row} need=${need} label=${label}
        now=${now} me=${me} showsRun=${false} isOver=${Boolean(goneAt)} onDone=${(said) => { keepAnswered(card); onSay(said); reload(); }} />`)}</div>`}</div>`}
    <main class=${`panes ${current === 'diff' ? 'two' : ''} ${current === 'signals' ? 'two' : ''}`} id="main">
      ${current === 'diff' ? html`<${DiffTab} view=${view} me=${me} turn=${diffTurn} onTurn=${setDiffTurn} />` : html`
        <${Work} view=${view} now=${now} turn=${turn} iteration=${iteration} onTurn=${(number) => { setTurn(number); open('live'); }}
          onIteration=${(number) => { setIteration(number); open('checks'); }} />
        ${current === 'live' && html`<${LiveTab} view=${view} outputs=${outputs} now=${now} selected=${turn} />${side}`}
        ${current === 'checks' && html`<${ChecksTab} view=${view} iteration=${iteration} onIteration=${setIteration} />${side}`}
        ${current === 'signals' && html`<${SignalsTab} view=${view} me=${me} now=${now} composer=${composer} />`}`}</main>`;
}

// Why the work is still on its own branch. The notice also says what to type.
function describeLanding({ failed, notice }) {
  return failed.length ? `${notice}. These checks fail: ${failed.map((title) => `\`${title}\``).join(', ')}. Send it back, or merge it yourself.` : notice;
}

function Head({ view, now, id, tab, isMine, panel, setPanel, send, steer }) {
  const passed = view.checks.filter((check) => !check.scope && check.status === 'passed').length;
  const total = view.checks.filter((check) => !check.scope).length || view.run.checks.length;
  const files = countFiles(view);
  const isRunning = view.turns.some((turn) => turn.end === null);
  const link = (name, text, extra) => html`<a href=${`/r/${id}/${name}`} aria-current=${tab === name ? 'page' : null}>${text}${extra}</a>`;
  return html`<div class="rhead"><nav class="crumb" aria-label="Where you are"><a href="/runs">${view.project_name}</a><${Icon} name="right" />${view.workflow}
      <${Icon} name="right" /><span class="mono">${view.run.id}</span><span class="dot">·</span><span class="cut" title=${view.agent}>${agentName(view.agent || view.run.agents.join(', '))}</span>
      ${view.run.branch && html`<span class="dot">·</span><${Icon} name="branch" /><span class="mono cut">${view.run.branch}</span>`}
      <span class="only-wide">·</span><span class="only-wide now">started ${clock(view.started_at || view.run.created_at)}, ${span(now - (view.started_at || view.run.created_at))} ago</span></nav>
    <div class="line1"><h1 class="cut" title=${view.run.task}>${firstLine(view.run.task)}</h1><${Badge} label=${view.display.label} />
      ${view.display.grade[1] !== view.display.label[1] && html`<${Badge} label=${view.display.grade} />`}${view.display.sandbox && html`<span class="row" title=${view.sandbox}><${Badge} label=${view.display.sandbox} /></span>`}<span class="grow"></span><${Actions} view=${view} isMine=${isMine} setPanel=${setPanel} send=${send} steer=${steer} /></div>
    ${panel && html`<${Confirm} view=${view} panel=${panel} onClose=${() => setPanel('')} send=${send} />`}
    <p class="headline"><${Prose} text=${sentence(view.headline)} /></p>
    ${view.alive && view.reasons.map((reason) => html`<p class="row c-need"><${Icon} name="warn" /><${Prose} text=${sentence(reason)} /></p>`)}
    <div class="limits">${view.limits.filter((limit) => limit.name !== 'deadline').map((limit) => html`<div class="limit"><div class="k">
      <span>${view.display.limits[limit.name] || limit.name}</span><span>${amount(limit, view.spent)}</span></div><${Bar} share=${limit.share} /></div>`)}
      ${!view.limits.some((limit) => limit.name === 'cost') && html`<div class="limit"><div class="k"><span>${view.display.limits.cost}, no limit</span>
        <span>${isUnpriced(view) ? 'unknown' : spentMoney(view.spent)}</span></div></div>`}</div>
    <nav class="tabs" aria-label="Run">${link('live', 'Live', isRunning && html`<span class="live" role="img" aria-label="a turn is running"></span>`)}
      ${link('checks', 'Checks', total > 0 && html`<span class="count">${passed} / ${total}</span>`)}
      ${link('diff', 'Diff', files > 0 && html`<span class="count">${files}</span>`)}
      ${link('signals', 'Signals', view.signals.length > 0 && html`<span class="count">${view.signals.length}</span>`)}</nav></div>`;
}

function isUnpriced({ spent }) {
  return spent.turns > 0 && spent.unpriced_turns === spent.turns;
}

// How many files the run changed, as far as the view says. What a task changed counts when it is merged.
function countFiles(view) {
  if (view.ended && view.ended.files.length) return view.ended.files.length + view.ended.more_files;
  const merged = new Set(view.tasks.filter((task) => task.state === 'done').map((task) => task.id));
  const turns = view.turns.filter((turn) => !turn.task || !view.run.branch || merged.has(turn.task));
  return new Set(turns.flatMap((turn) => turn.names)).size;
}

function Actions({ view, isMine, setPanel, send, steer }) {
  if (view.alive) {
    return html`<span class="row wrap head-acts"><button class="btn" disabled=${!isMine} onClick=${() => send('signals', { type: view.paused ? 'RESUME' : 'PAUSE' })}>
        <${Icon} name="pause" />${view.paused ? 'Do not pause' : 'Pause'} <kbd>p</kbd></button>
      <button class="btn" disabled=${!isMine} onClick=${steer}><${Icon} name="steer" />Steer <kbd>:</kbd></button>
      <button class="btn danger" disabled=${!isMine} onClick=${() => setPanel('abort')}><${Icon} name="stop" />Abort…</button></span>`;
  }
  const isUnlanded = view.attention === 5;
  const isPaused = view.can_go_on && !view.needs.length;
  return html`<span class="row wrap head-acts">
    ${isPaused && html`<button class="btn" disabled=${!isMine} onClick=${() => send('resume', {})}><${Icon} name="work" />Resume…</button>`}
    ${isUnlanded && html`<button class="btn" disabled=${!isMine} onClick=${() => setPanel('land')}><${Icon} name="land" />Land…</button>`}
    ${view.run.has_snapshots && !view.run.branch && view.turns.some((turn) => turn.files) && html`<button class="btn" disabled=${!isMine}
      onClick=${() => setPanel('undo')}><${Icon} name="undo" />Undo…</button>`}
    ${view.can_go_on && html`<button class="btn danger" disabled=${!isMine} onClick=${() => setPanel('abort')}><${Icon} name="stop" />Abort…</button>`}
    ${view.next && html`<${CopyButton} text=${view.next} label="Copy next command" kind="quiet" />`}</span>`;
}

const QUESTIONS = {
  abort: { ask: 'Abort this run?', more: 'Its turn ends at once. Its changes stay. `ralph undo` undoes them.', button: 'Abort run', keep: 'Keep running' },
  land: { ask: 'Land this work on your branch?', more: 'If your branch has moved, Ralph merges both, and the checks must pass first.', button: 'Land', keep: 'Not now' },
  undo: { ask: 'Undo what the last turn changed?', more: 'Ralph first records the files as they are.', button: 'Undo', keep: 'Keep the changes' },
};

function Confirm({ view, panel, onClose, send }) {
  const words = QUESTIONS[panel];
  const end = view.run.id.slice(-4);
  const [typed, setTyped] = useState('');
  const field = useRef(null);
  useLayoutEffect(() => { field.current?.focus(); }, [panel]);
  const go = (event) => {
    event.preventDefault();
    if (panel !== 'undo' && typed !== end) return;
    if (panel === 'abort') send('signals', { type: 'ABORT' });
    else send(panel, {});
  };
  return html`<form class="confirm" onSubmit=${go}><p><b>${words.ask}</b> <${Prose} text=${words.more} /></p><div class="row wrap">
    ${panel !== 'undo' && html`<label class="field"><span class="sr">Type ${end} to confirm</span><input ref=${field} placeholder=${`Type ${end}`} value=${typed}
      onInput=${(event) => setTyped(event.target.value)} /></label>`}
    <button class="btn danger" disabled=${panel !== 'undo' && typed !== end}>${words.button}</button>
    <button type="button" class="btn quiet" onClick=${onClose}>${words.keep}</button></div></form>`;
}

function amount({ name, used, limit }, spent) {
  if (name === 'cost') return `${spentMoney(spent, used)} of ${money(limit)}`;
  if (name === 'time') return `${Math.round(used / 60)} of ${Math.round(limit / 60)} min`;
  if (name === 'tokens') return `${tokens(used)} of ${tokens(limit)}`;
  return `${used} of ${limit}`;
}

function Work({ view, now, turn, iteration, onTurn, onIteration }) {
  return html`<aside class="pane side l" aria-label="Work">
    ${view.tasks.length ? html`<${Tasks} view=${view} turn=${turn} onTurn=${onTurn} />`
    : view.graph.kind === 'hats' ? html`<${Hats} view=${view} turn=${turn} onTurn=${onTurn} />`
      : html`<${Iterations} view=${view} now=${now} iteration=${iteration} onIteration=${onIteration} />`}
    <${Turns} view=${view} turn=${turn} onTurn=${onTurn} now=${now} />
    ${view.run.criterion && html`<div class="divided"><h2>Until</h2><p class="dim spaced"><${Prose} text=${view.run.criterion} /></p></div>`}
    ${view.actions.length > 0 && html`<div class="divided"><h2>Actions on this run</h2><ul>${view.actions.slice(-3).reverse().map((one) => html`<li class="sm dim spaced">
      ${clock(one.at)} <${Prose} text=${one.result} /></li>`)}</ul></div>`}
    <${Notices} view=${view} /></aside>`;
}

function Iterations({ view, iteration, onIteration }) {
  const checks = view.checks.filter((check) => !check.scope);
  const columns = columnsOf(checks).reverse();
  const [shown, more] = useShort(columns, 12);
  const running = view.alive && view.iteration && !columns.includes(view.iteration);
  return html`<div class="sec"><h2>Iterations</h2></div><ul class="list">
    ${running && html`<li><button class="pickrow" onClick=${() => onIteration(null)}><span class="now">Iteration ${view.iteration}</span><span class="grow"></span>
      <${Icon} name="work" tone="work" label="working" /><span class="sm dimmer num w44">now</span></button></li>`}
    ${shown.map((column) => html`<li><button class="pickrow" aria-current=${iteration === column ? 'true' : null} onClick=${() => onIteration(column)}>
      <span class="now">${column ? `Iteration ${column}` : 'Before the run'}</span><span class="grow"></span><span class="marks">${checks.slice(0, 8).map((check) => {
    const label = labelOf(view, pointAt(check, column));
    return html`<${Icon} name=${label[0]} tone=${label[2]} label=${label[1]} />`;
  })}</span></button></li>`)}${more}
    ${!columns.length && !running && html`<li class="sm dimmer">None yet</li>`}</ul>`;
}

function Turns({ view, turn, onTurn, now }) {
  const [turns, more] = useShort([...view.turns].reverse(), 12);
  if (!turns.length) return null;
  return html`<div class="divided"><div class="sec"><h2>Turns</h2><span class="grow"></span><span class="sm dimmer"><kbd>[</kbd> <kbd>]</kbd></span></div>
    <ul class="list">${turns.map((one) => html`<li><button class="pickrow" aria-current=${turn === one.number ? 'true' : null} onClick=${() => onTurn(one.number)}>
      <span class="cut">${one.number} ${roleName(one.role)}${one.task ? ` · ${one.task}` : ''}</span><span class="grow"></span><span class="sm dimmer now">${one.end === null ? 'now' : one.end === 'finished'
    ? span((one.ended_at || now) - one.started_at) : view.display.turn_ends[one.end]}</span></button></li>`)}${more}</ul></div>`;
}

function Notices({ view }) {
  const [notices, more] = useShort([...view.notices].reverse(), 3);
  if (!notices.length) return null;
  return html`<div class="divided"><h2>Notices</h2><ul>${notices.map((notice) => html`<li class="sm dim spaced">
      <${Prose} text=${sentence(notice.text)} /></li>`)}${more}</ul></div>`;
}

function Tasks({ view, turn, onTurn }) {
  const waves = [...new Set(view.tasks.map((task) => task.wave))].sort((a, b) => a - b);
  const done = view.tasks.filter((task) => task.state === 'done').length;
  const last = (task) => [...view.turns].reverse().find((one) => one.task === task.id);
  return html`<div class="sec"><h2>Tasks</h2><span class="grow"></span><span class="sm dim">${done} of ${view.tasks.filter((task) => task.state !== 'cancelled').length} done</span></div>
    ${waves.map((wave) => html`<p class="wave"><span>${wave ? `Wave ${wave}` : 'Other tasks'}</span></p><ul class="list">
      ${view.tasks.filter((task) => task.wave === wave).map((task) => {
    const [mark, word, tone] = view.display.tasks[task.id];
    const found = last(task);
    return html`<li><button class="pickrow" aria-current=${found && turn === found.number ? 'true' : null} disabled=${!found} onClick=${() => onTurn(found.number)}>
        <span class=${`mk c-${tone}`}>${mark}</span><span class="grow name" title=${`${task.id}${task.reason ? `: ${task.reason}` : ''}`}>${task.title || task.id}</span>
        <span class="sm dimmer now">${task.turn ? `turn ${task.turn}` : word}</span></button></li>`;
  })}</ul>`)}
    <p class="sm dimmer divided"><span class="mono">[ ]</span> open <span class="mono">[/]</span> at work <span class="mono">[P]</span> in review<br />
      <span class="mono">[x]</span> done <span class="mono">[F]</span> failed <span class="mono">[C]</span> cancelled</p>`;
}

function Hats({ view, turn, onTurn }) {
  return html`<div class="sec"><h2>Hats</h2></div><ul class="list">${view.graph.nodes.map((node) => {
    const found = [...view.turns].reverse().find((one) => one.role === node.id);
    return html`<li><button class="pickrow" disabled=${!found} aria-current=${found && turn === found.number ? 'true' : null} onClick=${() => onTurn(found.number)}>
      <${Icon} name=${node.state === 'running' ? 'work' : 'none'} tone=${node.state === 'running' ? 'work' : 'idle'} /><span class="grow name">${sentence(roleName(node.title || node.id))}</span>
      <span class="sm dimmer now">${count(node.count, 'turn')}</span></button></li>`;
  })}</ul>`;
}

// The view of a run and the output of its turns, kept up to date by the stream. Old data stays until new data is there.
function useRun(id, onLost) {
  const [view, setView] = useState(null);
  const [error, setError] = useState(null);
  const [outputs, setOutputs] = useState({});
  const [offline, setOffline] = useState('');
  const [gone, setGone] = useState(false);
  const timer = useRef(0);
  const pending = useRef([]);
  const isLoading = useRef(false);
  const isStale = useRef(false);

  const load = async () => {
    if (isLoading.current) { isStale.current = true; return; }
    isLoading.current = true;
    try {
      setView(await get(`/api/runs/${encodeURIComponent(id)}`));
      setError(null);
    } catch (problem) {
      onLost(problem);
      setError(problem);
    }
    isLoading.current = false;
    if (isStale.current) { isStale.current = false; later(); }
  };
  const later = () => { if (!timer.current) timer.current = setTimeout(() => { timer.current = 0; load(); }, 200); };
  const flush = () => {
    const events = pending.current.splice(0);
    if (!events.length) return;
    setOutputs((before) => {
      const after = { ...before };
      for (const event of events) {
        const known = after[event.turn] || [];
        if (!known.length || event.index > known.at(-1).index) after[event.turn] = [...known.slice(-KEPT_OUTPUTS), event];
      }
      return after;
    });
  };
  useEffect(() => {
    load();
    const ticking = setInterval(flush, 100);
    const slow = setInterval(later, 15000);
    const end = stream(`run=${encodeURIComponent(id)}`, {
      onEvent: (kind, event) => {
        if (kind === 'output') { pending.current.push(event); return; }
        if (kind === 'bye') { setGone(true); return; }
        if (kind === 'start' && !event.gap) { later(); return; }
        if (kind === 'gap' || kind === 'start') setOutputs({});
        later();
      },
      onState: (state) => {
        if (state.error) { onLost(state.error); if (state.error.status === 404) setGone(true); }
        setOffline((before) => (state.connected ? '' : before || new Date().toTimeString().slice(0, 8)));
      },
    });
    return () => { end(); clearInterval(ticking); clearInterval(slow); clearTimeout(timer.current); };
  }, [id]);
  return { view, error, outputs, offline, gone, reload: later };
}

// The diff of the whole run or of one turn, with comments on lines. Drafts stay in this tab; what is sent is kept by the run.
import { html, areKeysOn, Badge, clock, count, Empty, ErrorNote, Icon, Loading, onCtrlEnter, Prose, roleName, useEffect, useKeys, useLayoutEffect, useMedia, useRef, useState } from './lib.js';
import { act, get } from './api.js';

// `part` is the number of a turn, the id of a task, or empty for the whole run.
export function useDiff(view, part, isWanted = true, hidesSpace = false) {
  const [state, setState] = useState({ data: null, error: null });
  const changed = view.turns.filter((one) => one.end !== null).length;
  useEffect(() => {
    if (!isWanted) return undefined;
    let isCurrent = true;
    const query = new URLSearchParams(part ? { [/^\d+$/.test(part) ? 'turn' : 'task']: part } : {});
    if (hidesSpace) query.set('space', 'ignore');
    get(`/api/runs/${encodeURIComponent(view.key)}/diff?${query}`)
      .then((data) => isCurrent && setState({ data, error: null }))
      .catch((error) => isCurrent && setState((before) => ({ data: before.data, error })));
    return () => { isCurrent = false; };
  }, [view.key, part, changed, isWanted, hidesSpace]);
  return state;
}

export function DiffTab({ view, me, turn, onTurn }) {
  const [hidesSpace, setHidesSpace] = useState(false);
  const { data, error } = useDiff(view, turn, true, hidesSpace);
  const [drafts, setDrafts] = useDrafts(view.key);
  const [closed, setClosed] = useState({});
  const [isSplit, setIsSplit] = useSplit();
  const [state, setState] = useState({ phase: '', text: '' });
  const [isDiscarding, setIsDiscarding] = useState(false);
  const isMine = me.role === 'admin' && !me.read_only && (view.alive || view.can_go_on || ['session', 'classic'].includes(view.workflow));
  const ready = drafts.filter((draft) => draft.text.trim());
  const files = data?.files || [];
  const sent = placeComments(view.comments, files);
  const send = async () => {
    if (!ready.length || state.phase === 'sending') return;
    setState({ phase: 'sending', text: '' });
    try {
      const items = ready.map(({ path, line, side, hunk, marks, text }) => ({ path, line, side, hunk, marks, text }));
      await act(view.key, 'comments', { items });
      // What the user wrote meanwhile stays.
      const known = new Map(drafts.map((draft) => [draft.id, draft.text]));
      setDrafts((latest) => latest.filter((draft) => known.get(draft.id) !== draft.text));
      setState({ phase: '', text: '' });
    } catch (problem) { setState({ phase: '', text: `Nothing was sent: ${problem.what || problem.message}. ${problem.todo || ''}` }); }
  };
  useKeys({ C: ['Send the comments', send] }, 'Diff');
  useKeys({ j: ['Next line', null], k: ['Previous line', null], c: ['Comment on the line', null] }, 'On a focused line of the diff');
  const turns = view.turns.filter((one) => one.files);
  const tasks = view.tasks.filter((task) => turns.some((one) => one.task === task.id));
  const added = files.reduce((sum, file) => sum + file.added, 0);
  const removed = files.reduce((sum, file) => sum + file.removed, 0);
  return html`<aside class="pane side l" aria-label="Files"><div class="sec"><h2>${count(files.length, 'file')}</h2><${Stat} added=${added}
        removed=${removed} /><span class="grow"></span>${view.comments.length > 0 && html`<span class="sm dim">${count(view.comments.length, 'comment')}</span>`}</div>
      <ul class="list">${files.map((file) => html`<li><a href=${`#${fileId(file.path)}`}><span class="cut grow mono" title=${file.path}>${file.path}</span>
        ${view.findings.some((one) => one.is_open && one.finding.path === file.path) && html`<${Icon} name="warn" tone="need" label="guard finding" />`}
        ${commentsOn(sent, drafts, file.path) > 0 && html`<span class="row sm dim tight"><${Icon} name="note" />${commentsOn(sent, drafts, file.path)}</span>`}
        <${Stat} added=${file.added} removed=${file.removed} /></a></li>`)}</ul>
      ${(view.comments.length > 0 || drafts.length > 0) && html`<div class="divided"><h2>Comments</h2><ul class="list">
        ${sent.map((one) => html`<li><a href=${`#${fileId(one.path)}`}><${Icon} name=${ackOf(view, one)[0]} tone=${ackOf(view, one)[2]} />
          <span class="cut grow">${one.text}</span><span class="sm dimmer now">${ackOf(view, one)[1].toLowerCase()}</span></a></li>`)}
        ${drafts.map((one) => html`<li><a href=${`#${fileId(one.path)}`}><${Icon} name="edit" tone="idle" /><span class="cut grow">${one.text
    || '…'}</span><span class="sm dimmer now">draft</span></a></li>`)}</ul></div>`}</aside>
    <section class="diff-main" aria-label="Diff"><div class="pane"><div class="row bar-diff"><label class="pick"><span class="sr">Changes of</span>
        <select value=${turn} onChange=${(event) => onTurn(event.target.value)}><option value="">Whole run, base to now</option>
        ${tasks.map((task) => html`<option value=${task.id}>${task.id} ${task.title}</option>`)}
        ${turns.map((one) => html`<option value=${String(one.number)}>${one.is_iteration ? `Iteration of turn ${one.number}` : `Turn ${one.number}`} (${roleName(one.role)}${one.task
    ? `, ${one.task}` : ''}), ${count(one.files, 'file')}</option>`)}</select></label>
        <div class="seg only-wide" role="group" aria-label="Layout"><button aria-pressed=${!isSplit} onClick=${() => setIsSplit(false)}>Unified</button>
          <button aria-pressed=${isSplit} onClick=${() => setIsSplit(true)}>Split</button></div>
        <label class="row now sm"><input type="checkbox" checked=${hidesSpace} onChange=${(event) => setHidesSpace(event.target.checked)} />Hide whitespace</label>
        <span class="sm dimmer only-wide">${isMine ? 'Click a line to comment on it.' : ''}</span></div>
      ${error && html`<${ErrorNote} error=${error} />`}
      ${!data && !error && html`<${Loading} lines=${8} />`}
      ${data && !files.length && html`<div class="box"><${Empty} title="Nothing changed">${hidesSpace ? 'Only whitespace may have changed, which is hidden.'
    : turn ? 'This turn changed no files.' : 'The run has changed no files so far.'}<//></div>`}
      ${files.map((file) => html`<article class="box" id=${fileId(file.path)} key=${file.path}><header>
        <button class="linkish plain" aria-expanded=${!closed[file.path]} aria-label=${`Fold ${file.path}`}
          onClick=${() => setClosed({ ...closed, [file.path]: !closed[file.path] })}><${Icon} name=${closed[file.path] ? 'right' : 'down'} tone="idle" /></button>
        <h3 class="mono cut">${file.path}</h3><${Stat} added=${file.added} removed=${file.removed} />${file.status !== 'changed'
    && html`<span class="sm dimmer">${file.status}</span>`}<span class="grow"></span><span class="sm dimmer only-wide">${changedIn(view, file.path)}</span></header>
        ${!closed[file.path] && html`<${FileBody} file=${file} view=${view} sent=${sent} drafts=${drafts} setDrafts=${setDrafts} send=${send} isMine=${isMine} isSplit=${isSplit} />`}</article>`)}
      ${sent.filter((one) => !files.some((file) => file.path === one.path)).map((one) => html`<article class="box"><header><h3 class="mono">${one.path}</h3>
        <span class="sm dimmer">not in these changes</span></header><div class="in"><${Sent} view=${view} comment=${one} /></div></article>`)}
      ${data && drafts.filter((one) => !files.some((file) => file.path === one.path)).map((one) => html`<article class="box" key=${one.id}><header><h3 class="mono">${one.path}</h3>
        <span class="sm dimmer">not in these changes</span></header><div class="in"><${Draft} draft=${one} drafts=${drafts} setDrafts=${setDrafts} send=${send} isStale /></div></article>`)}</div>
      ${(drafts.length > 0 || state.text) && html`<div class="send"><b>${count(ready.length, 'comment')} not sent</b><span class="dim sm only-wide">${view.alive
    ? 'The run is working: they go to the running turn as one steer, with file, line and the quoted lines.'
    : 'The run has stopped: they reach it when it continues.'}</span>
        ${state.text && html`<span class="sm c-fail" role="alert">${state.text}</span>`}<span class="grow"></span>
        ${isDiscarding ? html`<button class="btn danger" onClick=${() => { setDrafts([]); setIsDiscarding(false); }}>Discard ${count(drafts.length, 'comment')}</button>
          <button class="btn quiet" onClick=${() => setIsDiscarding(false)}>Keep them</button>`
    : html`<button class="btn" onClick=${() => (ready.length ? setIsDiscarding(true) : setDrafts([]))}>Discard${ready.length ? '…' : ''}</button>
        <button class="btn primary" disabled=${!ready.length || state.phase === 'sending'} onClick=${send}>${state.phase === 'sending' ? 'Sending…'
    : `Send ${count(ready.length, 'comment')}`} <kbd>C</kbd></button>`}</div>`}</section>`;
}

function FileBody({ file, view, sent, drafts, setDrafts, send, isMine, isSplit }) {
  if (file.binary) return html`<${Empty} title="Binary file" />`;
  const comment = (line, side, hunk, marks) => {
    const known = drafts.find((one) => one.path === file.path && one.line === line && one.side === side);
    if (known) {
      setDrafts(drafts.map((one) => (one === known ? { ...one, editing: true, opened: Date.now() } : one)));
      return;
    }
    const draft = { path: file.path, line, side, hunk, marks, text: '', editing: true, opened: Date.now(), id: `${file.path} ${side} ${line} ${Date.now()}` };
    // A draft without words is not worth keeping when the user goes to another line.
    setDrafts([...drafts.filter((one) => one.text.trim()), draft]);
  };
  const mine = drafts.filter((one) => one.path === file.path);
  const shown = file.hunks.flatMap((hunk) => hunk.lines);
  const show = (draft, isStale) => html`<${Draft} key=${draft.id} draft=${draft} drafts=${drafts} setDrafts=${setDrafts} send=${send} isStale=${isStale} />`;
  const below = (line) => [
    ...sent.filter((one) => one.path === file.path && !one.isStale && isAt(one, line)).map((one) => html`<${Sent} view=${view} comment=${one} />`),
    ...mine.filter((one) => isAt(one, line)).map((one) => show(one, false)),
  ];
  const Lines = isSplit ? SplitHunk : Hunk;
  return html`<table class=${`hunk ${isSplit ? 'split' : ''}`} onKeyDown=${isMine ? moveBetweenLines : null}><tbody>
    ${file.hunks.map((hunk, n) => html`<${Lines} hunk=${hunk} isFirst=${n === 0} onComment=${isMine ? comment : null} below=${below} />`)}
    ${sent.filter((one) => one.path === file.path && one.isStale).map((one) => html`<tr><td class="cm" colspan=${isSplit ? 6 : 4}><${Sent} view=${view} comment=${one} /></td></tr>`)}
    ${mine.filter((one) => !shown.some((line) => isAt(one, line))).map((one) => html`<tr key=${one.id}><td class="cm" colspan=${isSplit ? 6 : 4}>${show(one, true)}</td></tr>`)}
    </tbody></table>${file.left_out > 0 && html`<p class="sm dimmer in">${count(file.left_out, 'more line')}; <code>ralph diff ${view.run.id}</code> shows all.</p>`}`;
}

// Only the first line of a file is a tab stop. From there, j and k or the arrows go from line to line, and c comments.
function moveBetweenLines(event) {
  if (!event.target.classList.contains('add-comment') || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key.length === 1 && !areKeysOn()) return;
  if (/^[0-9]$/.test(event.key)) { event.stopPropagation(); return; }
  if (event.key === 'c') { event.preventDefault(); event.target.click(); return; }
  const step = { j: 1, ArrowDown: 1, k: -1, ArrowUp: -1 }[event.key];
  if (!step) return;
  event.preventDefault();
  const all = [...document.querySelectorAll('.diff-main .add-comment')];
  all[all.indexOf(event.target) + step]?.focus();
}

export function Hunk({ hunk, hit = 0, isFirst = false, onComment = null, below = null }) {
  return html`<tr class="at"><td class="n"></td><td class="n"></td><td class="s"></td><td>${hunk.head} ${hunk.context}</td></tr>
    ${hunk.lines.flatMap((line, n) => {
    const [sign, old, fresh, text] = line;
    const kind = sign === '+' ? 'add' : sign === '-' ? 'del' : '';
    const notes = below ? below(line) : [];
    const open = onComment && clickOf(hunk, n, onComment);
    const row = html`<tr key=${`${old}-${fresh}`} class=${`${kind} ${hit && hit === fresh ? 'hit' : ''} ${open ? 'can' : ''}`} onClick=${open}><td class="n">${old ?? ''}</td><td class="n">${fresh ?? ''}</td>
        <td class="s"><${Sign} hunk=${hunk} n=${n} isStop=${isFirst && n === 0} onComment=${onComment} /></td>
        <td>${text}</td></tr>`;
    return notes.length ? [row, html`<tr key=${`notes ${old}-${fresh}`}><td class="cm" colspan="4">${notes}</td></tr>`] : [row];
  })}`;
}

// A click anywhere on a line comments on it, unless the user selects text.
function clickOf(hunk, n, onComment) {
  return () => {
    if (!String(getSelection()).trim()) commentOn(hunk, n, onComment);
  };
}

function commentOn(hunk, n, onComment) {
  const [sign, old, fresh] = hunk.lines[n];
  const isOld = sign === '-';
  onComment(isOld ? old : fresh, isOld ? 'old' : 'new', around(hunk.lines, n), [Math.min(n, 2)]);
}

// The sign of a line is the button that comments on it, for the keyboard and for screen readers.
function Sign({ hunk, n, isStop = false, onComment }) {
  const [sign, old, fresh] = hunk.lines[n];
  const isOld = sign === '-';
  const shown = isOld ? '−' : sign;
  if (!onComment) return shown;
  return html`<button class="add-comment" tabindex=${isStop ? 0 : -1} aria-label=${`Comment on ${isOld ? 'removed line' : 'line'} ${isOld ? old : fresh}`}
    onClick=${(event) => { event.stopPropagation(); commentOn(hunk, n, onComment); }}>${shown}</button>`;
}

// The old lines on the left, the new ones on the right. Removed and added lines that follow each other share rows.
function SplitHunk({ hunk, isFirst = false, onComment = null, below = null }) {
  const cells = (n, kind, isStop) => {
    if (n === null) return html`<td class="n none"></td><td class="s none"></td><td class="none"></td>`;
    const [sign, old, fresh, text] = hunk.lines[n];
    const isOld = kind === 'old';
    const tone = `${sign === '-' ? 'del' : sign === '+' ? 'add' : ''} ${onComment ? 'can' : ''}`;
    const open = onComment && clickOf(hunk, n, onComment);
    return html`<td class=${`n ${tone}`} onClick=${open}>${isOld ? old : fresh}</td>
      <td class=${`s ${tone}`} onClick=${open}>${isOld && sign !== '-' ? '' : html`<${Sign} hunk=${hunk} n=${n} isStop=${isStop} onComment=${onComment} />`}</td>
      <td class=${tone} onClick=${open}>${text}</td>`;
  };
  return html`<tr class="at"><td class="n"></td><td class="s"></td><td>${hunk.head} ${hunk.context}</td><td class="n"></td><td class="s"></td><td></td></tr>
    ${pairLines(hunk.lines).flatMap(([left, right], at) => {
    const both = left === right ? [left] : [left, right].filter((n) => n !== null);
    const notes = below ? both.flatMap((n) => below(hunk.lines[n])) : [];
    const name = both.map((n) => hunk.lines[n].slice(1, 3).join('-')).join(' ');
    const isStop = isFirst && at === 0;
    const row = html`<tr key=${name}>${cells(left, 'old', isStop)}${cells(right, 'new', isStop && (left === null || left === right))}</tr>`;
    return notes.length ? [row, html`<tr key=${`notes ${name}`}><td class="cm" colspan="6">${notes}</td></tr>`] : [row];
  })}`;
}

function pairLines(lines) {
  const pairs = [];
  let removed = [];
  let added = [];
  const flush = () => {
    for (let n = 0; n < Math.max(removed.length, added.length); n += 1) pairs.push([removed[n] ?? null, added[n] ?? null]);
    removed = [];
    added = [];
  };
  lines.forEach(([sign], n) => {
    if (sign === '-') { if (added.length) flush(); removed.push(n); return; }
    if (sign === '+') { added.push(n); return; }
    flush();
    pairs.push([n, n]);
  });
  flush();
  return pairs;
}

// Two columns need a wide screen. The choice holds for this tab of the browser.
function useSplit() {
  const isWide = useMedia('(min-width: 1000px)');
  const [isWanted, setIsWanted] = useState(sessionStorage.getItem('ralph-split') === 'yes');
  return [isWide && isWanted, (value) => { sessionStorage.setItem('ralph-split', value ? 'yes' : ''); setIsWanted(value); }];
}

function around(lines, n) {
  return lines.slice(Math.max(0, n - 2), n + 2).map(([sign, , , text]) => sign + text).join('\n');
}

function isAt(comment, [sign, old, fresh]) {
  return comment.side === 'old' ? sign === '-' && comment.line === old : sign !== '-' && comment.line === fresh;
}

// A comment whose line has another text now is stale: it stays, with the lines on which it was written.
function placeComments(comments, files) {
  return comments.map((one) => {
    const file = files.find((candidate) => candidate.path === one.path);
    const line = file?.hunks.flatMap((hunk) => hunk.lines).find((candidate) => isAt(one, candidate));
    const text = line ? line[3].trimEnd() : null;
    const isThere = text !== null && one.snippet.split('\n').some((known) => known.slice(1).trimEnd() === text);
    return { ...one, isStale: !isThere };
  });
}

function ackOf(view, comment) {
  const acks = view.display.signals[comment.signal] || [];
  const isTaken = comment.receipts.length > 0 || acks.some(([icon]) => icon === 'pass');
  if (comment.changed_by) return ['pass', `Changed by turn ${comment.changed_by}`, 'pass'];
  if (isTaken) return ['check', 'Received', 'idle'];
  if (comment.isStale) return ['none', 'Stale', 'idle'];
  return ['wait', 'Not received yet', acks[0]?.[1] === 'need' ? 'need' : 'idle'];
}

function Sent({ view, comment }) {
  const signal = view.signals.find((one) => one.id === comment.signal);
  const change = view.turns.find((turn) => turn.number === (comment.changed_by || comment.file_changed_by));
  return html`<div class="cmt" data-comment="sent"><div class="meta"><b>You</b><span>${comment.isStale ? 'was ' : ''}${lines(comment)}${signal?.at
    ? ` · ${clock(signal.at)}` : ''}</span><span class="grow"></span><${Badge} label=${ackOf(view, comment)} /></div><p>${comment.text}</p>
    ${comment.isStale && html`<pre class="out">${comment.snippet}</pre>`}
    ${(view.display.signals[comment.signal] || []).map(([icon, tone, text]) => html`<p class="ack"><${Icon} name=${icon} tone=${tone} /><span><${Prose} text=${text} /></span></p>`)}
    ${change && html`<p class="ack"><${Icon} name="check" tone="pass" /><span>Turn ${change.number} changed ${comment.changed_by ? 'these lines' : 'the file, not these lines'}${change.snapshot
    ? html` (<code>${change.snapshot.slice(0, 8)}</code>)` : ''}</span></p>`}
    ${comment.isStale && html`<p class="ack"><${Icon} name="none" tone="idle" /><span>The line has changed since; this is the text it was written on.</span></p>`}</div>`;
}

function lines(comment) {
  return comment.last_line ? `lines ${comment.line} to ${comment.last_line}` : `line ${comment.line}`;
}

function Draft({ draft, drafts, setDrafts, send, isStale = false }) {
  const area = useRef(null);
  // Before the browser paints: a user who types at once types into the field. A second click on the line focuses it again.
  useLayoutEffect(() => { if (draft.editing) area.current?.focus(); }, [draft.editing, draft.opened]);
  const change = (facts) => setDrafts(drafts.map((one) => (one.id === draft.id ? { ...one, ...facts } : one)));
  const own = useRef(null);
  // The keyboard goes on at the line: the row above has its button.
  const goToLine = () => [...(own.current?.closest('tr')?.previousElementSibling?.querySelectorAll('.add-comment') || [])].at(-1)?.focus();
  const remove = () => { goToLine(); setDrafts(drafts.filter((one) => one.id !== draft.id)); };
  const close = () => {
    if (!draft.text.trim()) { remove(); return; }
    goToLine();
    change({ editing: false });
  };
  const press = (event) => {
    if (event.key === 'Escape') { event.stopPropagation(); close(); } else onCtrlEnter(() => { goToLine(); send(); })(event);
  };
  return html`<div class="cmt" data-comment="draft" ref=${own}><div class="meta"><b>You</b><span>${isStale ? 'was ' : ''}${draft.side === 'old' ? 'removed ' : ''}line ${draft.line} · not sent</span><span class="grow"></span>
      <${Badge} label=${['edit', 'Draft', 'idle']} /></div>
    ${isStale && html`<pre class="out">${draft.hunk}</pre>`}
    ${draft.editing ? html`<label><span class="sr">Comment</span><textarea ref=${area} rows="2" value=${draft.text} onKeyDown=${press}
        onInput=${(event) => change({ text: event.target.value })}></textarea></label>
      <div class="row wrap"><button class="btn sm" disabled=${!draft.text.trim()} onClick=${close}>Keep</button>
      <button class="btn sm quiet" onClick=${remove}>Remove</button><span class="sm dimmer only-wide"><kbd>Ctrl Enter</kbd> sends all comments</span></div>`
    : html`<p>${draft.text}</p><div class="row"><button class="btn sm" onClick=${() => change({ editing: true })}>Edit</button>
      <button class="btn sm quiet" onClick=${remove}>Remove</button></div>`}</div>`;
}

function useDrafts(key) {
  const name = `ralph-drafts ${key}`;
  const [drafts, setDrafts] = useState(() => { try { return JSON.parse(sessionStorage.getItem(name)) || []; } catch { return []; } });
  const save = (change) => setDrafts((before) => {
    const after = typeof change === 'function' ? change(before) : change;
    sessionStorage.setItem(name, JSON.stringify(after));
    return after;
  });
  return [drafts, save];
}

function commentsOn(sent, drafts, path) {
  return sent.filter((one) => one.path === path).length + drafts.filter((one) => one.path === path).length;
}

function changedIn(view, path) {
  const turns = view.turns.filter((turn) => turn.names.includes(path)).map((turn) => turn.number);
  return turns.length ? `changed in turn${turns.length > 1 ? 's' : ''} ${turns.slice(-5).join(', ')}` : '';
}

function Stat({ added, removed }) {
  return html`<span class="dstat"><span class="plus">+${added}</span><span class="minus">−${removed}</span></span>`;
}

function fileId(path) {
  return `file-${encodeURIComponent(path)}`;
}


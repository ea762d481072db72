// Cards for what needs the user, answered in place. Keys work only while the card has the focus.
import { html, Badge, CopyButton, count, ErrorNote, firstLine, Icon, onCtrlEnter, Prose, clock, sentence, span, useEffect, useKeys, useLayoutEffect, useRef, useState } from './lib.js';
import { act, get } from './api.js';

const KEPT_SECONDS = 20;
const LONG_CHARS = 600;
const ON_CARD = 'On the focused card';
const SNOOZED = 'Snoozed for an hour. A question ends the snooze.';

export function cardId(row, need) {
  return `need-${row.key}-${need.kind}-${need.id}-${need.since}`.replace(/\s/g, '-');
}

// The cards to show. One that was answered stays for a while in its place, with its result, so that nothing jumps.
// `cards` are those that are open now; `isOpen` says of a need whether the run still has it. Another `scope` begins anew.
export function useCards(cards, isOpen, scope) {
  const known = useRef({ scope: '', cards: [], answered: new Set() });
  if (known.current.scope !== scope) known.current = { scope, cards: [], answered: new Set() };
  const { answered } = known.current;
  const ids = new Set(cards.map((card) => card.id));
  const now = Date.now();
  const shown = [...cards];
  known.current.cards.forEach((card, at) => {
    const isLeft = !ids.has(card.id) && (answered.has(card.id) || !isOpen(card));
    const goneAt = card.goneAt || now;
    const hasFocus = document.activeElement?.closest?.('.card')?.id === card.id;
    if (isLeft && (hasFocus || now - goneAt < KEPT_SECONDS * 1000)) shown.splice(at, 0, { ...card, goneAt });
  });
  known.current.cards = shown;
  return [shown, (id) => answered.add(id)];
}

export function NeedCard({ id, row, need, label, now, me, isOver = false, onDone, showsRun = true }) {
  const card = useRef(null);
  const [state, setState] = useState({ phase: 'open', text: '' });
  const isMine = me.role === 'admin' && !me.read_only;
  // The button that was pressed is gone then. The keyboard goes on at the card.
  useLayoutEffect(() => { if (state.hadFocus) card.current.focus(); }, [state]);

  const run = async (action, body, said) => {
    setState({ phase: 'sending', text: '', action: body?.choice || action });
    try {
      await act(row.key, action, body);
      setState({ phase: 'done', text: said, hadFocus: card.current?.contains(document.activeElement) });
      onDone?.(said, id);
    } catch (error) {
      const text = error.code === 'cancelled' ? '' : `${error.what || error.message}. ${error.todo || ''}`;
      setState({ phase: 'open', text });
    }
  };
  if (state.phase === 'done' || (isOver && state.phase === 'open')) {
    const isDone = state.phase === 'done';
    return html`<article class="card done" id=${id} tabindex="0" ref=${card} aria-label=${firstLine(row.task) || row.id}><p class="row"><${Icon} name=${isDone
      ? 'pass' : 'none'} tone=${isDone ? 'pass' : 'idle'} /><span>${isDone ? state.text : 'This no longer needs you.'}
      ${showsRun && html` <a class="link" href=${`/r/${row.key}`}>${firstLine(row.task) || row.id}</a>`}</span></p></article>`;
  }
  const shared = { row, need, run, me, isMine, card, now, showsRun, isSending: state.phase === 'sending', action: state.action };
  const Body = need.options.includes('accept') ? Decision : BODIES[need.kind] || ResumeBody;
  const title = `${id}-title`;
  return html`<article class="card" id=${id} tabindex="0" ref=${card} aria-labelledby=${title} data-need=${need.kind}>
    <div class="meta"><${Badge} label=${label} />
      ${showsRun && html`<a class="cut" href=${`/r/${row.key}`}>${firstLine(row.task) || row.id}</a>`}
      <span class="grow"></span><span class="now">${showsRun && html`<span class="only-wide">${row.project_name} · </span>`}
      ${need.since ? `waiting ${span(now - need.since)}` : ''}</span></div>
    <${Body} ...${shared} id=${title} />
    ${state.text && html`<p class="sm c-fail row" role="alert"><${Icon} name="failo" />${state.text}</p>`}</article>`;
}

function Question({ row, need, run, isMine, isSending, card, id }) {
  const own = need.options.length;
  const [choice, setChoice] = useState(need.options.length ? Math.max(0, need.options.indexOf(need.default)) : own);
  const [text, setText] = useState('');
  const area = useRef(null);
  const answer = choice === own ? text.trim() : need.options[choice];
  const send = () => answer && isMine && !isSending && run('answers', { question: need.id, text: answer }, `Answered “${answer}”. The agent gets it now.`);
  const [writes, setWrites] = useState(0);
  const write = () => { setChoice(own); setWrites(writes + 1); };
  useLayoutEffect(() => { if (writes) area.current?.focus(); }, [writes]);
  const keys = { r: ['Send the answer', send] };
  need.options.forEach((option, n) => { keys[String(n + 1)] = [`Choose “${option}”`, () => setChoice(n)]; });
  keys[String(own + 1)] = ['Answer in your own words', write];
  useKeys(isMine ? keys : {}, ON_CARD, card);
  const name = `${row.key}-${need.id}`;
  const [question, ...why] = need.text.trim().split('\n');
  return html`<h3 class="ask" id=${id}><${Prose} text=${question} /></h3>
    ${why.length > 0 && html`<p class="why"><${Prose} text=${why.join(' ')} /></p>`}
    <fieldset class="body"><legend class="sr">Choices</legend>
    ${need.options.map((option, n) => html`<label class=${`choice ${choice === n ? 'on' : ''}`}>
      <input type="radio" name=${name} checked=${choice === n} onChange=${() => setChoice(n)} />${option}
      <span class="grow"></span><kbd class="only-wide">${n + 1}</kbd></label>`)}
    ${own > 0 && html`<label class=${`choice ${choice === own ? 'on' : ''}`}><input type="radio" name=${name}
      checked=${choice === own} onChange=${write} />Something else, in
      my words…<span class="grow"></span><kbd class="only-wide">${own + 1}</kbd></label>`}
    ${choice === own && html`<label class="composer"><span class="sr">Your answer</span><textarea ref=${area} rows="2"
      placeholder="Your answer" value=${text} onKeyDown=${onCtrlEnter(send)} onInput=${(event) => setText(event.target.value)}></textarea></label>`}
    </fieldset>
    <div class="acts"><button class="btn primary" disabled=${!isMine || !answer || isSending} onClick=${send}>
      ${isSending ? 'Sending…' : 'Send answer'} <kbd>r</kbd></button><span class="grow"></span>
      ${need.until && html`<span class="sm dimmer">Until ${clock(need.until)}${need.default
    ? `, then “${need.default}” counts` : ', then the agent decides'}</span>`}</div>`;
}

// What waits for approval: the documents of the latest iteration in which something was learned.
function useLearned(key) {
  const [found, setFound] = useState({ items: null, error: null });
  useEffect(() => {
    const base = `/api/runs/${encodeURIComponent(key)}/documents`;
    const load = async () => {
      const { documents } = await get(base);
      const staged = documents.map(({ path }) => path.match(/^\.ralph-sessions\/[^/]+\/iterations\/(\d+)\/knowledge\/[^/]+\/[^/]+\.md$/)).filter(Boolean);
      const latest = Math.max(...staged.map((match) => Number(match[1])));
      const paths = staged.filter((match) => Number(match[1]) === latest).map((match) => match[0]);
      const texts = await Promise.all(paths.map((path) => get(`${base}/${path.split('/').map(encodeURIComponent).join('/')}`)));
      return texts.map(readLearned);
    };
    load().then((items) => setFound({ items, error: null }), (error) => setFound({ items: null, error }));
  }, [key]);
  return found;
}

function readLearned({ path, text, next }) {
  const body = text.replace(/^---\n[\s\S]*?\n---\n/, '').trim();
  const heading = body.match(/^# +(.+)\n*/);
  const rest = heading ? body.slice(heading[0].length) : body;
  const [category, file] = path.split('/').slice(-2);
  return { path, category, title: heading ? heading[1] : file.replace(/\.md$/, ''), text: next === null ? rest : `${rest}\n… The rest is in ${path}.` };
}

function Learned({ found }) {
  if (found.error) return html`<${ErrorNote} error=${found.error} />`;
  if (!found.items) return html`<p class="why">Loading what it learned…</p>`;
  return html`<p class="why">${count(found.items.length, 'thing')} to read:</p>
    <div class="body learned">${found.items.map((item) => html`<details key=${item.path} open=${item.text.length <= LONG_CHARS}>
      <summary><b>${item.title}</b> <span class="sm dim">${item.category}</span></summary><div class="out" tabindex="0">${item.text}</div></details>`)}</div>`;
}

function Approval({ row, need, run, isMine, isSending, action, card, id }) {
  const found = useLearned(row.key);
  const left = need.unfinished.join('; ');
  const [text, setText] = useState('');
  const choose = (choice, said) => run('approve', { choice, text }, said);
  const keep = () => choose('approve', 'Approved. The session keeps what it learned and continues.');
  const skip = () => choose('skip', 'Skipped. The session continues without it.');
  useKeys(isMine ? { a: ['Approve', keep], d: ['Skip', skip] } : {}, ON_CARD, card);
  return html`<h3 class="ask" id=${id}>Keep what this session learned?</h3>
    ${left && html`<p class="why"><${Prose} text=${sentence(left)} /></p>`}<${Learned} found=${found} />
    <label class="composer body"><span class="sr">What to keep</span><textarea rows="2" value=${text}
      placeholder="What to keep, if not all of it" onInput=${(event) => setText(event.target.value)}></textarea></label>
    <div class="acts"><button class="btn" disabled=${!isMine || isSending} onClick=${keep}>${isSending && action === 'approve' ? 'Approving…' : 'Approve…'} <kbd>a</kbd></button>
      <button class="btn" disabled=${!isMine || isSending} onClick=${skip}>${isSending && action === 'skip' ? 'Skipping…' : 'Skip…'} <kbd>d</kbd></button><span class="grow"></span>
      <span class="sm dimmer">Recorded with your name; needs your passphrase</span></div>`;
}

// What the headline says beside the reason, which the card has already.
function restOfHeadline(row, need) {
  const [, rest] = row.headline.split(need.text);
  return rest === undefined ? row.headline : rest.replace(/^[;:,. ]+/, '');
}

function ResumeBody({ row, need, run, isMine, isSending, card, showsRun, id }) {
  const [text, setText] = useState('');
  const asks = ['guidance', 'feedback'].includes(need.kind);
  const rest = showsRun ? restOfHeadline(row, need) : '';
  const canGo = isMine && !isSending && (!asks || text.trim());
  const go = () => canGo && run('resume', { text }, 'It continues now.');
  const area = useRef(null);
  const aside = () => run('snooze', { minutes: 60 }, SNOOZED);
  useKeys(isMine ? { r: ['Write', () => area.current?.focus()], z: ['Snooze for an hour', aside] } : {}, ON_CARD, card);
  const title = { guidance: 'How should it continue?', feedback: 'What should change in the next iteration?',
    unproven: 'The result could not be verified' }[need.kind] || 'It stopped before it was done';
  return html`<h3 class="ask" id=${id}>${title}</h3><p class="why"><${Prose} text=${sentence(need.text)} /></p>
    ${rest && html`<p class="sm dim body"><${Prose} text=${sentence(rest)} /></p>`}
    <label class="composer body"><span class="sr">Guidance</span><textarea ref=${area} rows="2" value=${text}
      placeholder=${need.kind === 'feedback' ? 'Your feedback' : asks ? 'Your guidance' : 'Guidance for the next turn, if any'}
      onKeyDown=${onCtrlEnter(go)} onInput=${(event) => setText(event.target.value)}></textarea></label>
    <div class="acts"><button class=${`btn ${asks ? 'primary' : ''}`} title="Needs your passphrase" onClick=${go}
        disabled=${!canGo}>${isSending ? 'Starting…' : 'Resume…'}</button>
      ${showsRun && html`<a class="btn quiet" href=${`/r/${row.key}/checks`}>Evidence</a>`}
      <${CopyButton} text=${need.command} label="Copy command" kind="quiet" />
      <button class="btn quiet" disabled=${!isMine || isSending} onClick=${aside}>Snooze 1 h <kbd>z</kbd></button><span class="grow"></span>
      ${!showsRun && html`<span class="sm dimmer only-wide now">Needs your passphrase</span>`}</div>`;
}

// The decision is the user's alone, so that no button stands out.
function Decision({ row, need, run, isMine, isSending, action, card, showsRun, id }) {
  const [text, setText] = useState('');
  const area = useRef(null);
  const passed = row.checks_passed ?? row.checks.filter((check) => !check.scope && check.status === 'passed').length;
  const isHeldUp = need.findings.length > 0;
  const aside = () => run('snooze', { minutes: 60 }, SNOOZED);
  useKeys(isMine ? { r: ['Write', () => area.current?.focus()], z: ['Snooze for an hour', aside] } : {}, ON_CARD, card);
  const cannot = !isMine || isSending || !text.trim();
  return html`<h3 class="ask" id=${id}>${isHeldUp ? 'Are these changes right?' : 'Accept this result without a proof?'}</h3>
    <p class="why"><${Prose} text=${sentence(need.text)} /></p>
    <ul class="body facts">${passed > 0 && html`<li><${Icon} name="check" tone="pass" />${count(passed, 'check')} ${passed === 1 ? 'passes' : 'pass'} in
      the workspace</li>`}${need.findings.slice(0, 3).map((finding) => html`<li><${Icon} name="warn" tone="need" /><span><${Prose} text=${finding} /></span></li>`)}
      ${need.findings.length > 3 && html`<li class="sm dim">and ${need.findings.length - 3} more</li>`}</ul>
    <label class="composer body"><span class="sr">Your reason</span><textarea ref=${area} rows="2" value=${text}
      placeholder="Why the work is right, or what to change" onInput=${(event) => setText(event.target.value)}></textarea></label>
    <div class="acts"><button class="btn" disabled=${cannot} onClick=${() => run('accept', { text }, 'Accepted. Ralph runs the checks once more.')}>${isSending && action === 'accept' ? 'Accepting…' : 'Accept…'}</button>
      <button class="btn" disabled=${cannot} onClick=${() => run('resume', { text }, 'Sent back. It continues with your guidance.')}>${isSending && action === 'resume' ? 'Sending back…' : 'Send back…'}</button>
      ${showsRun && html`<a class="btn quiet" href=${`/r/${row.key}/checks`}>Evidence</a>`}
      <${CopyButton} text=${need.command} label="Copy command" kind="quiet" /></div>
    <p class="sm dimmer">Recorded as “accepted”, with your reason. Both need your passphrase.</p>`;
}

function Conflict({ row, need, showsRun, id }) {
  return html`<h3 class="ask" id=${id}><${Prose} text=${need.text.split(':')[0]} /></h3>
    <p class="why">Both branches are kept.</p>
    <ul class="body facts">${need.files.slice(0, 6).map((file) => html`<li><${Icon} name="conflict" tone="fail" />
      <code>${file}</code></li>`)}${need.files.length > 6 && html`<li class="sm dim">and ${need.files.length - 6} more</li>`}</ul>
    <div class="acts">${showsRun && html`<a class="btn" href=${`/r/${row.key}`}>Open the run</a>`}
      <${CopyButton} text=${need.command} label="Copy command" kind="quiet" /><span class="grow"></span>
      <span class="sm dimmer mono">${need.branch}</span></div>`;
}

function Missing({ row, need, id }) {
  return html`<h3 class="ask" id=${id}>Your branches, tags or stash have changed</h3><p class="why body"><${Prose} text=${need.text} /></p>
    <div class="acts"><a class="btn" href=${`/r/${row.key}`}>Open the run</a>
      <${CopyButton} text=${need.command} label="Copy command" kind="quiet" /></div>`;
}

const BODIES = { question: Question, approval: Approval, conflict: Conflict, missing: Missing };

// Several runs at once: choose them in the list, then pause, abort or remove them together. Each answer of the server is shown.
import { html, count, firstLine, Icon, useRef, useLayoutEffect, useState } from './lib.js';
import { act } from './api.js';

const ACTIONS = {
  pause: {
    button: 'Pause', fits: (row) => row.alive && row.state === 'running', done: 'paused after their turns',
    send: (row) => act(row.key, 'signals', { type: 'PAUSE' }),
  },
  abort: {
    button: 'Abort…', fits: (row) => row.alive || (row.next.includes('resume') && !row.done_by), done: 'aborted', isDanger: true,
    ask: 'Abort', more: 'Their turns end at once. Their changes stay.',
    send: (row) => act(row.key, 'signals', { type: 'ABORT' }),
  },
  clean: {
    button: 'Remove…', fits: (row) => !row.alive, done: 'removed', isDanger: true,
    ask: 'Remove', more: 'Their journals, prompts and snapshots are deleted, so they can no longer be undone. Your files and unmerged work stay.',
    send: (row) => act(row.key, 'clean', {}),
  },
};

export function useSelection(rows) {
  const [isOn, setIsOn] = useState(false);
  const [keys, setKeys] = useState(new Set());
  const known = new Set(rows.map((row) => row.key));
  const chosen = new Set([...keys].filter((key) => known.has(key)));
  return {
    isOn, keys: chosen,
    toggleMode: () => { setKeys(new Set()); setIsOn(!isOn); },
    toggle: (key) => {
      if (!key) return;
      const after = new Set(chosen);
      if (!after.delete(key)) after.add(key);
      setKeys(after);
    },
    set: (list) => setKeys(new Set(list)),
  };
}

export function SelectBar({ selection, rows, onSay, onDone }) {
  const [panel, setPanel] = useState('');
  const [typed, setTyped] = useState('');
  const [state, setState] = useState({ isSending: false, done: '', failed: [] });
  const field = useRef(null);
  useLayoutEffect(() => { field.current?.focus(); }, [panel]);
  const chosen = rows.filter((row) => selection.keys.has(row.key));
  const fitting = (name) => chosen.filter(ACTIONS[name].fits);
  const run = async (name) => {
    const action = ACTIONS[name];
    const targets = fitting(name);
    const failed = [];
    let done = 0;
    setPanel('');
    setTyped('');
    setState({ isSending: true, done: '', failed: [] });
    for (const row of targets) {
      try {
        await action.send(row);
        done += 1;
      } catch (error) {
        failed.push([firstLine(row.task) || row.id, error.code === 'cancelled' ? 'Nothing was done' : `${error.what || error.message}. ${error.todo || ''}`]);
        if (error.code === 'cancelled' || error.code === 'no-passphrase') break;
      }
    }
    const said = done ? `${count(done, 'run')} ${action.done}.` : '';
    setState({ isSending: false, done: said, failed });
    if (said) onSay(said);
    onDone();
  };
  const ask = (name) => (ACTIONS[name].isDanger ? setPanel(name) : run(name));
  const number = panel ? String(fitting(panel).length) : '';
  return html`<section class="send select-bar" aria-label="Selection"><b class="now">${count(chosen.length, 'run')} selected</b>
    <button class="linkish sm" onClick=${() => selection.set(chosen.length ? [] : rows.map((row) => row.key))}>${chosen.length ? 'None' : 'All shown'}</button>
    <span class="sm dimmer only-wide"><kbd>j</kbd> <kbd>k</kbd> move, <kbd>x</kbd> selects</span>
    ${state.done && html`<span class="sm row" role="status"><${Icon} name="pass" tone="pass" />${state.done}</span>`}
    ${state.failed.map(([title, text]) => html`<span class="sm c-fail" role="alert">${title}: ${text}</span>`)}<span class="grow"></span>
    ${panel ? html`<form class="row wrap" onSubmit=${(event) => { event.preventDefault(); if (typed === number) run(panel); }}>
      <span class="sm"><b>${ACTIONS[panel].ask} ${count(fitting(panel).length, 'run')}?</b> ${ACTIONS[panel].more}</span>
      <label class="field"><span class="sr">Type ${number} to confirm</span><input ref=${field} placeholder=${`Type ${number}`} value=${typed}
        onInput=${(event) => setTyped(event.target.value)} /></label>
      <button class="btn danger" disabled=${typed !== number}>${ACTIONS[panel].ask}</button>
      <button type="button" class="btn quiet" onClick=${() => { setPanel(''); setTyped(''); }}>Cancel</button></form>`
    : Object.entries(ACTIONS).map(([name, action]) => html`<button class=${`btn ${action.isDanger ? 'danger' : ''}`}
      disabled=${state.isSending || !fitting(name).length} onClick=${() => ask(name)}>${action.button}${fitting(name).length
    ? ` ${fitting(name).length}` : ''}</button>`)}</section>`;
}

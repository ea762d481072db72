// The page: routes, the top bar, login, the passphrase, and what is the same on every screen.
import { render } from './vendor/preact.js';
import { html, areKeysOn, Dialog, Empty, Icon, listKeys, Loading, ErrorNote, Note, switchKeys, useEffect, useKeys, useLayoutEffect, useRef, useState } from './lib.js';
import { askOtherTabs, get, onPassphrase, setToken, takeToken } from './api.js';
import { Inbox } from './inbox.js';
import { NewRun } from './new.js';
import { RunPage } from './run.js';

export function navigate(path) {
  history.pushState(null, '', path);
  window.dispatchEvent(new PopStateEvent('popstate'));
}

function usePath() {
  const [path, setPath] = useState(location.pathname);
  useEffect(() => {
    const update = () => setPath(location.pathname);
    const follow = (event) => {
      const link = event.target.closest?.('a[href^="/"]');
      if (!link || event.defaultPrevented || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
      event.preventDefault();
      navigate(link.getAttribute('href'));
    };
    addEventListener('popstate', update);
    document.addEventListener('click', follow);
    return () => { removeEventListener('popstate', update); document.removeEventListener('click', follow); };
  }, []);
  return path;
}

function useTheme() {
  const [theme, setTheme] = useState(localStorage.getItem('ralph-theme') || '');
  useEffect(() => {
    if (theme) document.documentElement.dataset.theme = theme;
    else delete document.documentElement.dataset.theme;
    localStorage.setItem('ralph-theme', theme);
  }, [theme]);
  const isDark = theme ? theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
  return [isDark, () => setTheme(isDark ? 'light' : 'dark')];
}

function TopBar({ path, needs, me, project, onProject, onHelp, theme }) {
  const [isDark, toggle] = theme;
  const names = [...new Set((me?.projects || []).map((one) => one.name))];
  return html`<header class="top"><a class="brand only-wide" href="/">Ralph</a><span class="sep only-wide"></span>
    <label class="switch"><span class="sr">Project</span>
      <select value=${project} onChange=${(event) => onProject(event.target.value)}>
        <option value="">All projects</option>${names.map((name) => html`<option value=${name}>${name}</option>`)}
      </select><${Icon} name="updown" /></label>
    <nav class="nav only-wide" aria-label="Main">
      <a href="/" aria-current=${path === '/' ? 'page' : null}>Inbox${needs > 0 && html`<span class="count need"
        aria-label=${`${needs} need you`}>${needs}</span>`}</a>
      <a href="/runs" aria-current=${!['/', '/new'].includes(path) ? 'page' : null}>Runs</a></nav>
    <span class="grow"></span>
    ${me?.read_only && html`<span class="badge idle"><${Icon} name="none" />Read-only</span>`}
    ${me && !me.read_only && me.role !== 'admin' && html`<span class="badge idle"><${Icon} name="none" />View only</span>`}
    <span class="sm dim only-wide">${me ? me.name : ''}</span>
    ${me?.can_start && me.role === 'admin' && !me.read_only && html`<a class="btn primary only-wide" href="/new"><${Icon} name="plus" />New run</a>`}
    <button class="btn quiet icon only-wide" onClick=${onHelp} aria-label="Keys"><${Icon} name="keys" /></button>
    <button class="btn quiet icon" onClick=${toggle} aria-label=${isDark ? 'Use light colors' : 'Use dark colors'}>
      <${Icon} name="sun" /></button></header>`;
}

function BottomBar({ path, needs }) {
  return html`<nav class="botbar" aria-label="Main">
    <a href="/" aria-current=${path === '/' ? 'page' : null}><${Icon} name="inbox" /><span class="lab">Inbox
      ${needs > 0 && html`<span class="count need">${needs}</span>`}</span></a>
    <a href="/runs" aria-current=${!['/', '/new'].includes(path) ? 'page' : null}><${Icon} name="list" />Runs</a>
    <a href="/new" aria-current=${path === '/new' ? 'page' : null}><${Icon} name="plus" />New</a></nav>`;
}

function Login({ problem, onToken }) {
  const [value, setValue] = useState('');
  const submit = (event) => { event.preventDefault(); if (value.trim()) onToken(value); };
  return html`<main class="page login" id="main"><form class="card" onSubmit=${submit}>
    <h1>Ralph</h1>
    <p class="dim">${problem || 'This tab has no token yet.'} Run <code>ralph web</code> in a terminal and open the link that it
      prints, or paste the token here.</p>
    <label class="field"><span class="sr">Token</span><input type="password" autocomplete="off" placeholder="Token"
      value=${value} onInput=${(event) => setValue(event.target.value)} autofocus /></label>
    <div class="acts"><button class="btn primary">Open</button></div></form></main>`;
}

// Stays open while the server checks what was typed, so that nothing typed meanwhile goes elsewhere.
function Passphrase() {
  const [asked, setAsked] = useState(null);
  const [value, setValue] = useState('');
  useLayoutEffect(() => {
    onPassphrase({
      ask: (problem) => new Promise((resolve) => { setValue(''); setAsked({ problem, resolve }); }),
      end: () => setAsked(null),
    });
  }, []);
  const field = useRef(null);
  useLayoutEffect(() => { if (asked && !asked.isChecking) field.current.focus(); }, [asked]);
  const finish = (text) => {
    if (asked.isChecking) return;
    asked.resolve(text);
    setAsked(text === null ? null : { ...asked, isChecking: true });
  };
  const submit = (event) => { event.preventDefault(); if (value) finish(value); };
  return html`<${Dialog} isOpen=${Boolean(asked)} onClose=${() => finish(null)} title="Type your passphrase">
    <form onSubmit=${submit}>
      <p class="dim">Agents must not decide this. The passphrase is valid in this tab for 15 minutes.</p>
      <label class="field"><span class="sr">Passphrase</span><input ref=${field} type="password" autocomplete="current-password"
        value=${value} onInput=${(event) => setValue(event.target.value)} /></label>
      ${asked?.problem && !asked.isChecking && html`<p class="sm c-fail row" role="alert"><${Icon} name="failo" />${asked.problem}</p>`}
      <div class="acts"><button class="btn primary" disabled=${!value || asked?.isChecking}>${asked?.isChecking ? 'Checking…' : 'Continue'}</button>
        <button type="button" class="btn quiet" disabled=${asked?.isChecking} onClick=${() => finish(null)}>Cancel</button></div></form><//>`;
}

function KeysHelp({ isOpen, onClose }) {
  const [isOn, setIsOn] = useState(areKeysOn());
  const change = (event) => { switchKeys(event.target.checked); setIsOn(event.target.checked); };
  return html`<${Dialog} isOpen=${isOpen} onClose=${onClose} title="Keys">
    <p class="dim">These keys work on this screen, except while you type.</p>
    ${isOpen && listKeys().map(([place, keys]) => html`<h3>${place}</h3><dl class="keys">${keys.map(([key, title]) => html`<div><dt><kbd>${key}</kbd></dt>
      <dd>${title}</dd></div>`)}</dl>`)}
    <label class="row keys-switch"><input type="checkbox" checked=${isOn} onChange=${change} />Use single keys in this browser</label>
    <div class="acts"><button class="btn" onClick=${onClose}>Close</button></div><//>`;
}

function App() {
  const path = usePath();
  const theme = useTheme();
  const [me, setMe] = useState(null);
  const [error, setError] = useState(null);
  const [needs, setNeeds] = useState(0);
  const [project, setProject] = useState(sessionStorage.getItem('ralph-project') || '');
  const [said, setSaid] = useState('');
  const [showsKeys, setShowsKeys] = useState(false);

  const load = async () => {
    try {
      setMe(await get('/api/me'));
      setError(null);
    } catch (problem) {
      if (problem.status === 401 && await askOtherTabs()) {
        try { setMe(await get('/api/me')); setError(null); return; } catch (again) { setError(again); return; }
      }
      setError(problem);
    }
  };
  useEffect(() => { takeToken(); load(); }, []);
  useEffect(() => { document.title = needs ? `(${needs}) Ralph` : 'Ralph'; }, [needs, path]);
  const choose = (name) => { sessionStorage.setItem('ralph-project', name); setProject(name); };
  const lost = (problem) => { if (problem?.status === 401) { setMe(null); setError(problem); } };
  useKeys({ '?': ['This help', () => setShowsKeys(true)], g: ['Go to the inbox', () => navigate('/')] }, 'Everywhere');

  const bar = html`<${TopBar} path=${path} needs=${needs} me=${me} project=${project} onProject=${choose} theme=${theme}
    onHelp=${() => setShowsKeys(true)} />`;
  if (error?.status === 401) {
    return html`${bar}<${Login} problem=${`${error.what}.`} onToken=${(value) => { setToken(value); load(); }} />`;
  }
  if (error) return html`${bar}<main class="page" id="main"><${ErrorNote} error=${error} onRetry=${load} /></main>`;
  if (!me) return html`${bar}<main class="page" id="main"><${Loading} /></main>`;

  const match = path.match(/^\/r\/([^/]+)(?:\/([a-z]+))?$/);
  const shared = { me, onLost: lost, onNeeds: setNeeds, onSay: setSaid };
  let screen = html`<${Inbox} key=${path} ...${shared} project=${project} isInbox=${path !== '/runs'} />`;
  if (path === '/new') screen = html`<${NewRun} me=${me} project=${project} />`;
  if (match) {
    const key = decodeURIComponent(match[1]);
    screen = html`<${RunPage} key=${key} id=${key} tab=${match[2] || ''} ...${shared} />`;
  }
  if (!match && !['/', '/runs', '/new'].includes(path)) {
    screen = html`<main class="page" id="main"><div class="box"><${Empty} title="There is nothing at this address">
      <p><code>${path}</code></p><a class="btn" href="/">Go to the inbox</a><//></div></main>`;
  }
  return html`<a class="skip btn" href="#main">Skip to content</a>${bar}
    ${!match && !me.has_passphrase && !me.read_only && me.role === 'admin' && html`<div class="strip"><${Note} icon="none">You can watch,
      steer and answer here. To approve, land, undo and resume, set a passphrase in a terminal:${' '}
      <code>ralph web passphrase</code><//></div>`}
    ${screen}<${BottomBar} path=${path} needs=${needs} /><${Passphrase} />
    <${KeysHelp} isOpen=${showsKeys} onClose=${() => setShowsKeys(false)} />
    <div class="sr" role="status" aria-live="polite">${said}</div>`;
}

switchKeys(areKeysOn());
document.getElementById('app').textContent = '';
render(html`<${App} />`, document.getElementById('app'));

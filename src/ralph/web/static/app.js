// The page: routes, the top bar, login, the passphrase, and what is the same on every screen.
import { render } from './vendor/preact.js';
import { html, Icon, Loading, ErrorNote, Note, useEffect, useKeys, useRef, useState } from './lib.js';
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

function TopBar({ path, needs, me, project, onProject, theme }) {
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

function Passphrase() {
  const dialog = useRef(null);
  const [asked, setAsked] = useState(null);
  const [value, setValue] = useState('');
  useEffect(() => {
    onPassphrase((problem) => new Promise((resolve) => { setValue(''); setAsked({ problem, resolve }); }));
  }, []);
  useEffect(() => {
    if (asked && !dialog.current.open) dialog.current.showModal();
    if (!asked && dialog.current.open) dialog.current.close();
  }, [asked]);
  const finish = (text) => { asked?.resolve(text); setAsked(null); };
  return html`<dialog ref=${dialog} class="dialog" aria-labelledby="pp"
      onCancel=${(event) => { event.preventDefault(); finish(null); }}>
    <form onSubmit=${(event) => { event.preventDefault(); finish(value); }}>
      <h2 id="pp">Type your passphrase</h2>
      <p class="dim">Agents must not decide this. The passphrase is valid in this tab for 15 minutes.</p>
      <label class="field"><span class="sr">Passphrase</span><input type="password" autocomplete="current-password"
        value=${value} onInput=${(event) => setValue(event.target.value)} /></label>
      ${asked?.problem && html`<p class="sm c-fail row"><${Icon} name="failo" />${asked.problem}</p>`}
      <div class="acts"><button class="btn primary" disabled=${!value}>Continue</button>
        <button type="button" class="btn quiet" onClick=${() => finish(null)}>Cancel</button></div></form></dialog>`;
}

function App() {
  const path = usePath();
  const theme = useTheme();
  const [me, setMe] = useState(null);
  const [error, setError] = useState(null);
  const [needs, setNeeds] = useState(0);
  const [project, setProject] = useState(sessionStorage.getItem('ralph-project') || '');
  const [said, setSaid] = useState('');

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
  useKeys({ g: () => navigate('/') });

  const bar = html`<${TopBar} path=${path} needs=${needs} me=${me} project=${project} onProject=${choose} theme=${theme} />`;
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
  return html`<a class="skip btn" href="#main">Skip to content</a>${bar}
    ${!match && !me.has_passphrase && !me.read_only && me.role === 'admin' && html`<div class="strip"><${Note} icon="none">You can watch,
      steer and answer here. To approve, land, undo and resume, set a passphrase in a terminal:${' '}
      <code>ralph web passphrase</code><//></div>`}
    ${screen}<${BottomBar} path=${path} needs=${needs} /><${Passphrase} />
    <div class="sr" role="status" aria-live="polite">${said}</div>`;
}

document.getElementById('app').textContent = '';
render(html`<${App} />`, document.getElementById('app'));

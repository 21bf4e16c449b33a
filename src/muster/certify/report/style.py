"""The style sheet of the HTML report, light and dark. The colours are the set of Okabe and Ito (2008)."""

STYLE = """
:root { color-scheme: light dark; --ink: #111; --paper: #fff; --soft: #555; --rule: #ccc; --shade: #f4f4f4;
  --good: #009E73; --bad: #D55E00; --mixed: #E69F00; --fair: #F0E442; --none: #bbb; --line: #0072B2; --cell: #000; }
@media (prefers-color-scheme: dark) { :root { --ink: #eee; --paper: #16181c; --soft: #aaa; --rule: #444;
  --shade: #22252b; --good: #23b58b; --bad: #f07b2f; --mixed: #f0b030; --fair: #f0e442; --none: #777;
  --line: #56B4E9; } }
body { font-family: system-ui, sans-serif; line-height: 1.45; color: var(--ink); background: var(--paper);
  margin: 2rem auto; max-width: 66rem; padding: 0 1rem; overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.25rem; margin-top: 2.2rem; border-bottom: 1px solid var(--rule); }
h3 { font-size: 1rem; margin: 1.2rem 0 0.3rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 0.88rem; }
th, td { text-align: left; padding: 0.22rem 0.6rem; border-bottom: 1px solid var(--rule); vertical-align: top; }
td.n, th.n { text-align: right; white-space: nowrap; }
th { white-space: nowrap; }
.whole { white-space: nowrap; }
td { overflow-wrap: break-word; } td:last-child { min-width: 9rem; } td.n:last-child { min-width: 0; }
figure { margin: 1rem 0; } figcaption, .soft { font-size: 0.86rem; color: var(--soft); }
svg { display: block; height: auto; }
details { margin: 0.6rem 0; } summary { cursor: pointer; font-weight: 600; }
.verdict { font-size: 1.15rem; padding: 0.7rem 0.9rem; border-left: 6px solid var(--none); background: var(--shade); }
.verdict.pass { border-color: var(--good); } .verdict.fail { border-color: var(--bad); }
.note { background: var(--shade); border-left: 6px solid var(--mixed); padding: 0.5rem 0.8rem; }
.tag { display: inline-block; padding: 0 0.5em; border-radius: 0.3em; font-weight: 600; color: #000;
  background: var(--none); white-space: nowrap; }
.tag.Passed, .tag.PASS { background: var(--good); } .tag.Failed, .tag.FAIL { background: var(--bad); }
.tag.Undetermined, .tag.WARN { background: var(--mixed); }
.tiles { display: flex; flex-wrap: wrap; gap: 0.6rem; padding: 0; list-style: none; }
.tiles li { background: var(--shade); padding: 0.5rem 0.9rem; min-width: 7rem; }
.tiles b { font-size: 1.4rem; display: block; }
.t { fill: var(--ink); } .on-cell { fill: var(--cell); font-weight: 700; } .frame { fill: none; stroke: var(--rule); }
.good { fill: var(--good); } .bad { fill: var(--bad); } .mixed { fill: var(--mixed); } .fair { fill: var(--fair); }
.unknown { fill: var(--none); } .total { fill: var(--soft); } .axis { stroke: var(--ink); }
.grid { stroke: var(--rule); }
.line { fill: none; stroke: var(--line); stroke-width: 2; } .band { fill: var(--line); opacity: 0.2; }
.dot { fill: var(--line); } .dot-bad { fill: var(--bad); }
.floor { stroke: var(--bad); stroke-width: 1.5; stroke-dasharray: 7 5; }
@media print { details { display: block; } body { max-width: none; } }
"""

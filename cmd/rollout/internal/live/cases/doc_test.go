// Package cases_test drives the built program against a real Letta server with a scripted engine, and
// compares every row with the engine's calls. make e2e-letta runs them.
//
//	program ─► Letta ─► [rollout tap] ─► engine ─► calls ────────┐
//	   └─► rows, failures ───────────────────────────────────────┴─► enginecheck.Compare
//
// # Forms
//
// One test starts one Letta and runs the cases in sequence. A single case can be selected:
//
//	go test -short -run 'TestLetta/(plain|tap)' ./cmd/rollout/internal/live/cases
//
// The short form runs some cases with one sample of most tasks. The full form runs all cases with
// more samples, on two servers. If a case does not depend on it, the servers pool their PostgreSQL
// connections, which halves the CPU time of a rollout. Both forms have cases through `rollout tap`
// in which the server keeps no traces and the order of the tools changes in its database. Every row
// of these cases must be exact.
//
// # The server
//
// A Letta is a real server: PostgreSQL with pgvector, and one or more server processes on it.
//
//	l := Start(t, Config{Servers: 2})
//	handle := l.Provider(t, "sglang-engine", engineURL) // the model of the agents
//	… rollout collect --server l.URLs[0] --model handle --tokenizer l.Model …
//	l.Kill(t, 0); l.Restart(t, 0)
//	l.Postgres.Kill(t); l.Postgres.Restart(t)
//
// Steps of a start:
//
//	.ci/letta.sh ─► .build/letta-VERSION        the packages, once (make letta)
//	               .build/letta-VERSION/state   initdb, migrations, tokenizer, once (state_linux_test.go)
//	Start ─► a new folder in the system's temporary folder
//	       ├─ pg/       copy of state/pg, with its own PostgreSQL      (postgres_linux_test.go)
//	       ├─ home-0/   home of the first server, home-1/ the second  (server_linux_test.go)
//	       └─ logs/     output of each process
//
// The variable ROLLOUT_LETTA names the installation. make e2e-letta sets it. Without it, every test
// that calls [Start] is skipped with a message that explains how to install Letta.
//
// # Cleanup
//
// Nothing is left behind. Every process leads a process group, and a small shell
// (process_linux_test.go) waits on a pipe for the end of the test process. When the test process ends
// for any reason, including a panic, Ctrl-C or SIGKILL, the keeper kills the groups and removes
// the folder. The logs of a failed test are saved to letta-logs beside the installation.
//
// # Ports
//
// Ports are chosen below the range that the system assigns from. Otherwise another process could
// get the port before the server starts, ten seconds later.
package cases_test

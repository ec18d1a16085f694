// Package live runs a real Letta server for tests: PostgreSQL with pgvector, and one or more server
// processes on it. Only tests import it.
//
//	l := live.Start(t, live.Config{Servers: 2})
//	handle := l.Provider(t, "sglang-engine", engineURL) // the model of the agents
//	… rollout collect --server l.URLs[0] --model handle --tokenizer l.Model …
//	l.Kill(t, 0); l.Restart(t, 0)
//	l.Postgres.Kill(t); l.Postgres.Restart(t)
//
// Steps of a start:
//
//	.ci/letta.sh ─► .build/letta-VERSION        the packages, once (make letta)
//	               .build/letta-VERSION/state   initdb, migrations, tokenizer, once (state_linux.go)
//	Start ─► a new folder in the system's temporary folder
//	       ├─ pg/       copy of state/pg, with its own PostgreSQL      (postgres_linux.go)
//	       ├─ home-0/   home of the first server, home-1/ the second  (server_linux.go)
//	       └─ logs/     output of each process
//
// The variable ROLLOUT_LETTA names the installation. make e2e-letta sets it. Without it, every test
// that calls [Start] is skipped with a message that explains how to install Letta.
//
// # Cleanup
//
// Nothing is left behind. Every process leads a process group, and a small shell
// (process_linux.go) waits on a pipe for the end of the test process. When the test process ends
// for any reason, including a panic, Ctrl-C or SIGKILL, the keeper kills the groups and removes
// the folder. The logs of a failed test are saved to letta-logs beside the installation.
//
// # Ports
//
// Ports are chosen below the range that the system assigns from. Otherwise another process could
// get the port before the server starts, ten seconds later.
package live

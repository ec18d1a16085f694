// Package subprocess runs a program and kills every process that the program started.
//
// [Run] starts the program, waits until it exits or the context is done, and then kills all
// processes that are left. A process can leave its parent in several ways. The table lists which
// processes Run kills:
//
//	a process that …                          Linux,      Linux,        other
//	                                          supervisor  no supervisor Unix
//	stayed in the group of the program        killed      killed        killed
//	ignores signals, or is stopped            killed      killed        killed
//	changed its name or closed its files      killed      killed        killed
//	has its own group or session (setsid)     killed      killed        survives
//	also lost its parent (a double fork)      killed      killed        survives
//	also cleared its environment              killed      survives      survives
//	forks all the time                        killed       mostly killed survives
//	was started by a daemon, such as docker   survives    survives      survives
//	runs as another user (setuid)             survives    survives      survives
//	waits in the kernel (state D)             dies as soon as the kernel lets it
//
// A process that is still alive after 10 s counts in [Result.Left].
//
// On Linux, the variable [MarkVar] in the environment of the program identifies its processes,
// because all of them inherit it. [KillMarked] finds them in /proc, even if the process that called
// Run is dead. So the next process of a run can kill what a dead process left.
//
// # The supervisor
//
// A supervisor is a small process between this process and the program. It is the same executable
// that calls [Main]:
//
//	this process ── supervisor ── program ── …
//	                   │
//	                   └─ every process of the program that lost its parent
//
// Linux makes a supervisor the new parent of every orphan below it (PR_SET_CHILD_SUBREAPER), so no
// process can leave the supervisor's part of the process tree. When the program exits, the
// supervisor kills all processes below it. It does the same if this process dies, even by SIGKILL,
// because it notices the end of a connection. A program can end the supervisor only on purpose, by
// SIGKILL. In this case, the mark in the environment still applies. A program cannot forge the report
// of its supervisor with what it writes, unless it attaches to the supervisor as a debugger does.
//
// # Other programs
//
// [OwnGroup] and [KillGroup] are for programs that keep running and are trusted, such as a scorer.
package subprocess

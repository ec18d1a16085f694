// Package harness runs an agent program, a harness, for each attempt at a sample. It implements
// [collector.Backend]. The calls of the program become rows because the program sends them to the
// URL of a session.
//
// # One attempt
//
//	collector       package harness                               others
//
//	Backend.Open    make a folder with a fresh HOME, copy the
//	                work folder, begin a session                   Sessions.Begin
//	Agent.Run       run the command, kill all of its processes     package subprocess
//	                read the final answer
//	                seal the session and read its calls            Sessions.End, Sessions.Read
//	                find the conversations                         session.Build
//	Agent.Prompts   return the calls
//	(scorer)        read the work folder
//	Agent.Close     remove the session and the folder              Sessions.Remove
//
// # The folder and the environment
//
//	rollout-MARK/         MARK depends on the run, the sample and the number of the attempt
//	  home/               HOME, with Config.Files
//	  work/               the working directory: a copy of Config.Workdir
//	  tmp/                TMPDIR
//	  session             the id of the session
//	  answer              the final answer, if it contains a secret
//
// The copy contains files, folders and symbolic links. It keeps the permission to execute a file.
// The command inherits only these variables: PATH, LANG, LC_ALL, LC_CTYPE, TZ, USER, LOGNAME and
// SHELL. HOME, PWD and TMPDIR are set as above, TERM is dumb, NO_COLOR is 1, and package subprocess
// adds its mark. Config.Env takes precedence. There is no terminal.
//
// A command is not in a sandbox. It can read and write whatever the user can, use the network, and
// fill the disk until its attempt ends. To prevent this, run rollout in a container.
//
// # What is stored
//
// Of the standard output and of the output file, only the last MiB is kept, and of the standard
// error only the last line. The scorer receives the final answer and the messages of the conversation
// unchanged. Before they, the details of the reward or an error are stored or logged, secrets are
// replaced: the keys of all sessions, the values in Config.Secrets, and the values of variables for
// which [IsSecret] returns true. A value of fewer than 8 bytes is not replaced. In JSON, only strings
// change.
//
// If an agent prints its environment, the model reads the secrets, and the tokens contain them. These
// tokens are stored unchanged, because they are what the model saw. So are the calls of the session,
// until Agent.Close removes it. A key is harmless, because the session is sealed by then, and a key
// opens only its own session.
//
// # Failures
//
// The exit code alone decides nothing. Scorers receive it. The first line that applies determines
// the class of the failure:
//
//	the command …                                               class
//	timed out, and no engine is up                              unavailable
//	timed out                                                   timeout_total: not a fault of the engine
//	ended without an answered call, and the engine failed       as for the engine
//	ended without an answered call                              no_calls
//	sent no conversation that contains the task's message       foreign
//	was ended by a signal                                       agent_error
//	ended, and the last answer has finish reason length         none: the sample is truncated
//	ended with an exit code other than 0, without a final       as for the engine
//	answer or without a trained call, and the last call failed
//	ended without a final answer                                empty_answer
//
// The final answer is missing if the standard output or the file in Config.Output has no text, or if
// the last answer of the main conversation has neither text nor, with exit code 0, tool calls. The
// status of the last call determines the class of an engine's failure:
//
//	200, answer was cut off      connection, if the main conversation made the call
//	429                          rate_limited
//	none, 502, 503, 504          unavailable
//	401, 403                     auth
//	other 5xx                    server_error
//	other 4xx                    context_overflow if the engine's error states it and the engine
//	                             answered another call, or bad_request
//
// If a command cannot be started, the class is bad_request if the prompt does not fit into an
// argument, unusable if the program is gone, and otherwise unavailable.
//
// # After a crash
//
// If this process dies, the supervisor kills the processes of the command (package subprocess). If
// the supervisor died too, [Backend.Reattach] and [Clean] find these processes by their mark. An
// attempt is taken over only if its session was sealed and its work folder exists, because then the
// command had ended by itself. The end of the session contains the exit code and the final answer.
// Any other attempt is gone, and the sample gets a new attempt with a new session. The session of
// such an attempt stays open in the store. The next process of the run removes it with Store.Clear.
package harness

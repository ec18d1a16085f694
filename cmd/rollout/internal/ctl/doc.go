// Package ctl is how a collector at work is told something: RUN/ctl.sock, a Unix socket in
// the folder of its run. Only the user who collects may connect to it (mode 0600), and no
// port of the network is opened.
//
// # What is said
//
// A client sends requests, one JSON object per line, and gets one answer per request, in the
// order of the requests, each a JSON object on one line. It may send further requests before
// it has read the answers to earlier ones, and may stay connected for as long as it likes.
//
//	{"op":"status"}                         {"ok":true,"planned":96,"committed":64, …}: a [Status]
//	{"op":"pause"}                          {"ok":true}: no further sample begins
//	{"op":"resume"}                         {"ok":true}
//	{"op":"drain"}                          {"ok":true}: no more tasks are accepted; a pause ends, and the run with those that were
//	{"op":"set-version","version":3}        {"ok":true}: what is sent from now on, version 3 samples
//	{"op":"ack","seq":5,"groups":2}         {"ok":true}: the reader has all groups up to there
//	{"op":"ack","seq":5,"groups":2,"only":true}  {"ok":true}: the reader leaves out that group: it is ahead no longer
//	{"op":"ack","run_id":"…","seq":5,"groups":2}  refused where the cursor is of another run than the collector's
//	{"op":"task","task":{"id":"a", …}}      {"ok":true,"task":"a","group":"…","samples":8,"again":false}
//
// The answer to a task comes when the task is on the disk. While too many tasks wait, or too many
// events are unread, the next task waits, and with it what the same client sends after it. A
// client that adds tasks and gives orders uses one connection for each.
//
// A request that is not fulfilled
// changes nothing, and its answer says why and what to do:
//
//	{"ok":false,"error":"…","hint":"…","code":2}
//
// code is the exit status that rollout ctl ends with. The connection goes on after such an
// answer, but for a line that is too long: where its successor begins is not known.
//
// # Bounds
//
// A line has at most [MaxLine] bytes, and two lines of more than a megabyte are read at a
// time. A line must be there as a whole 30 seconds after its first byte, and an answer be
// taken 30 seconds after it was given; else the connection is closed, and nobody else waits
// for it. [MaxClients] clients may be connected.
//
// # The path
//
// The address of a Unix socket has room for 107 bytes on Linux, and 103 elsewhere. Where
// RUN/ctl.sock is longer, both sides open the folder and say /proc/self/fd/N/ctl.sock (Linux),
// or go through a link in the folder for temporary files, which is removed when the socket is
// bound or connected. A program in another language does the same, or changes into the folder
// and connects to ctl.sock.
package ctl

// Package ctl controls a running collector over RUN/ctl.sock, a Unix socket in the run's folder.
// Only the user who runs the collector can connect to the socket (mode 0600). Package ctl does not
// open a network port.
//
// # Protocol
//
// A client sends one JSON object per line. It receives one answer per request, in the order of the
// requests. Each answer is also a JSON object on one line. A client can send more requests before
// it reads earlier answers. It can stay connected indefinitely.
//
//	{"op":"status"}                         {"ok":true,"planned":96,"committed":64, …}: a [Status]
//	{"op":"pause"}                          {"ok":true}: no new samples are started
//	{"op":"resume"}                         {"ok":true}
//	{"op":"drain"}                          {"ok":true}: no more tasks are accepted; a pause ends; the run ends after the accepted tasks
//	{"op":"set-version","version":3}        {"ok":true}: from now on, the engines sample all sends with version 3
//	{"op":"ack","seq":5,"groups":2}         {"ok":true}: the reader has received all groups up to this cursor
//	{"op":"ack","seq":5,"groups":2,"only":true}  {"ok":true}: the reader drops this group, which no longer counts as ahead
//	{"op":"ack","run_id":"…","seq":5,"groups":2}  refused if the cursor belongs to another run
//	{"op":"task","task":{"id":"a", …}}      {"ok":true,"task":"a","group":"…","samples":8,"again":false}
//
// A task is answered once it is on disk. While too many tasks are waiting, or too many events are
// unread, the next task is not accepted until there is room. Later requests from the same client
// then also wait. A client that adds tasks should therefore use a second connection for its other
// requests.
//
// A request that is refused has no effect. The answer contains the reason and a hint:
//
//	{"ok":false,"error":"…","hint":"…","code":2}
//
// code is the exit status of rollout ctl. After a refusal, the connection stays open. It is closed
// only if a line is too long, because the start of the next line is then unknown.
//
// # Limits
//
// A line can have at most [MaxLine] bytes. At most two lines of more than a megabyte are read at
// the same time. A line must be complete within 30 seconds of its first byte, and a client must
// read an answer within 30 seconds. Otherwise the connection is closed. Other clients are not
// delayed. At most [MaxClients] clients can be connected.
//
// # Path of the socket
//
// The address of a Unix socket can have at most 107 bytes on Linux and 103 elsewhere. If
// RUN/ctl.sock is longer, both sides need a shorter address. On Linux, they open the folder and use
// /proc/self/fd/N/ctl.sock. Elsewhere, they create a symbolic link in the folder for temporary
// files, and remove it once the socket is bound or connected. A program in another language can do
// the same, or change to the folder and connect to ctl.sock.
package ctl

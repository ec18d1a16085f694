// Package ctl controls a running collector over RUN/ctl.sock, a Unix socket in the folder of the
// run. Only the user who runs the collector can connect to it (mode 0600). It opens no network
// port.
//
// # Protocol
//
// A client sends one JSON object per line. It gets one answer per request, in the order of the
// requests, each a JSON object on one line. It can send further requests before it reads earlier
// answers. It can stay connected as long as it likes.
//
//	{"op":"status"}                         {"ok":true,"planned":96,"committed":64, …}: a [Status]
//	{"op":"pause"}                          {"ok":true}: no further sample begins
//	{"op":"resume"}                         {"ok":true}
//	{"op":"drain"}                          {"ok":true}: no more tasks are accepted; a pause ends; the run ends after the accepted tasks
//	{"op":"set-version","version":3}        {"ok":true}: the engines sample all sends from now on with version 3
//	{"op":"ack","seq":5,"groups":2}         {"ok":true}: the reader has all groups up to this cursor
//	{"op":"ack","seq":5,"groups":2,"only":true}  {"ok":true}: the reader drops this group, which no longer counts as ahead
//	{"op":"ack","run_id":"…","seq":5,"groups":2}  refused if the cursor belongs to another run
//	{"op":"task","task":{"id":"a", …}}      {"ok":true,"task":"a","group":"…","samples":8,"again":false}
//
// A task is answered when it is on disk. While too many tasks wait, or too many events are unread,
// the next task waits, and so do the later requests of the same client. A client that adds tasks
// should therefore use a second connection for its other requests.
//
// A request that is refused changes nothing. Its answer has the reason and a remedy:
//
//	{"ok":false,"error":"…","hint":"…","code":2}
//
// code is the exit status of rollout ctl. The connection stays open after such an answer, except
// after a line that is too long, because the start of the next line is then unknown.
//
// # Bounds
//
// A line has at most [MaxLine] bytes, and two lines of more than a megabyte are read at a time. A
// line must be complete 30 seconds after its first byte, and the client must read an answer within
// 30 seconds. Otherwise the connection is closed. Other clients do not wait for it. [MaxClients]
// clients can be connected.
//
// # The path
//
// The address of a Unix socket can have 107 bytes on Linux and 103 elsewhere. If RUN/ctl.sock is
// longer, both sides open the folder and use /proc/self/fd/N/ctl.sock (Linux). Elsewhere they use a
// symbolic link in the folder for temporary files, and remove it once the socket is bound or
// connected. A program in another language can do the same, or change into the folder and connect
// to ctl.sock.
package ctl

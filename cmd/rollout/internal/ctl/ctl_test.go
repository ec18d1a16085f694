package ctl_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/ctl"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
)

type run struct {
	mu   sync.Mutex
	told []string
	hold chan struct{} // if not nil, tasks wait until it is closed
}

func (r *run) note(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.told = append(r.told, fmt.Sprintf(format, args...))
}

func (r *run) all() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.told)
}

func (r *run) Status() ctl.Status {
	v := int32(3)
	return ctl.Status{RunID: "r", Planned: 8, Committed: 5, Filtered: 1, Remaining: 2, Version: &v, Cursor: &ctl.Cursor{Seq: 2, Groups: 1}}
}
func (r *run) Pause() error  { r.note("pause"); return nil }
func (r *run) Resume() error { r.note("resume"); return nil }
func (r *run) Drain() error  { r.note("drain"); return nil }

func (r *run) SetVersion(v int32) error {
	r.note("version %d", v)
	if v == 1 {
		return exit.Hint(exit.Usagef("version 1 is older than 2"), "versions rise")
	}
	return nil
}

func (r *run) Acknowledge(_ context.Context, c ctl.Cursor) error {
	r.note("ack %d %d%s", c.Seq, c.Groups, c.RunID)
	return nil
}

func (r *run) LeaveOut(c ctl.Cursor) error {
	r.note("leave out %d %d%s", c.Seq, c.Groups, c.RunID)
	return nil
}

func (r *run) Task(ctx context.Context, task json.RawMessage) func() (ctl.Accepted, error) {
	r.note("task %s", task)
	return func() (ctl.Accepted, error) {
		if r.hold != nil {
			select {
			case <-r.hold:
			case <-ctx.Done():
				return ctl.Accepted{}, context.Cause(ctx)
			}
		}
		var t struct{ ID string }
		err := json.Unmarshal(task, &t)
		return ctl.Accepted{Task: t.ID, Group: "g-" + t.ID, Samples: 8}, err
	}
}

// serve answers for r at the socket of dir until the test ends or end is called.
func serve(t *testing.T, dir string, r *run, patience time.Duration) (end func()) {
	t.Helper()
	l, err := ctl.Listen(dir)
	must(t, err)
	if patience > 0 {
		l.SetPatience(patience)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		l.Serve(ctx, r)
		close(done)
	}()
	end = sync.OnceFunc(func() {
		cancel()
		select {
		case <-done:
		case <-time.After(10 * time.Second):
			t.Error("Serve has not returned")
		}
	})
	t.Cleanup(end)
	return end
}

// connect opens a raw connection, for input that a client would not send.
func connect(t *testing.T, dir string) (net.Conn, *bufio.Reader) {
	t.Helper()
	conn, err := net.Dial("unix", ctl.Path(dir))
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	return conn, bufio.NewReader(conn)
}

func answer(t *testing.T, in *bufio.Reader) map[string]any {
	t.Helper()
	line, err := in.ReadBytes('\n')
	if err != nil {
		t.Fatalf("no answer: %v (%q)", err, line)
	}
	var a map[string]any
	if err := json.Unmarshal(line, &a); err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	return a
}

func dial(t *testing.T, dir string) *ctl.Client {
	t.Helper()
	c, err := ctl.Dial(t.Context(), dir)
	must(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

func TestOps(t *testing.T) {
	t.Parallel()
	dir, r := t.TempDir(), &run{}
	end := serve(t, dir, r, 0)
	c := dial(t, dir)
	var s ctl.Status
	if err := c.Do(ctl.Request{Op: ctl.OpStatus}, &s); err != nil || s.Planned != 8 || *s.Version != 3 || *s.Cursor != (ctl.Cursor{Seq: 2, Groups: 1}) {
		t.Errorf("status = %+v, %v", s, err)
	}
	for _, op := range []string{ctl.OpPause, ctl.OpResume} {
		if err := c.Do(ctl.Request{Op: op}, nil); err != nil {
			t.Errorf("%s: %v", op, err)
		}
	}
	version, seq, groups := int32(0), int64(5), 2
	must(t, c.Do(ctl.Request{Op: ctl.OpSetVersion, Version: &version}, nil))
	for _, run := range []string{"", " of run-1"} {
		for _, only := range []bool{false, true} {
			must(t, c.Do(ctl.Request{Op: ctl.OpAck, RunID: run, Seq: &seq, Groups: &groups, Only: only}, nil))
		}
	}
	var a ctl.Accepted
	if err := c.Do(ctl.Request{Op: ctl.OpTask, Task: json.RawMessage(`{"id": "a",  "prompt":"<b>"}`)}, &a); err != nil || a != (ctl.Accepted{Task: "a", Group: "g-a", Samples: 8}) {
		t.Errorf("task = %+v, %v", a, err)
	}
	version = 1
	err := c.Do(ctl.Request{Op: ctl.OpSetVersion, Version: &version}, nil)
	no, ok := errors.AsType[*ctl.RefusedError](err)
	if !ok || exit.Code(no.Exit()) != exit.Usage || exit.HintOf(no.Exit()) != "versions rise" || no.Error() != "version 1 is older than 2" {
		t.Errorf("a refusal = %v", err)
	}
	if err := c.Do(ctl.Request{Op: ctl.OpDrain}, nil); err != nil { // the connection still works
		t.Error(err)
	}
	want := []string{"pause", "resume", "version 0", "ack 5 2", "leave out 5 2", "ack 5 2 of run-1", "leave out 5 2 of run-1", `task {"id":"a","prompt":"<b>"}`, "version 1", "drain"}
	if got := r.all(); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	end()
	if _, err := os.Lstat(ctl.Path(dir)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket after the end: %v", err)
	}
	if err := c.Do(ctl.Request{Op: ctl.OpStatus}, nil); err == nil || exit.Code(err) != exit.Unusable {
		t.Errorf("an answer after the end: %v", err)
	}
}

// Invalid requests are refused with a message, and later requests on the connection still work.
func TestBadInput(t *testing.T) {
	t.Parallel()
	dir, r := t.TempDir(), &run{}
	serve(t, dir, r, 0)
	conn, in := connect(t, dir)
	for _, line := range []string{
		`pause`, `{"op":"pause"`, `[]`, `"pause"`, `7`, `null`, `{}`, `{"op":"psuse"}`, `{"op":7}`, `{"op":"pause"}{"op":"drain"}`,
		`{"op":"pause","why":1}`, `{"op":"set-version"}`, `{"op":"set-version","version":-1}`, `{"op":"set-version","version":2147483648}`,
		`{"op":"set-version","version":3.5}`, `{"op":"set-version","version":"3"}`, `{"op":"ack"}`, `{"op":"ack","seq":1}`,
		`{"op":"ack","seq":-1,"groups":0}`, `{"op":"ack","seq":1,"groups":1e99}`, `{"op":"task"}`, `{"op":"task","task":null}`,
		`{"op":"task","task":[1]}`, "\x00", "\xff\xfe", strings.Repeat("[", 20000), `{"op":"` + strings.Repeat("x", 5000) + `"}`,
	} {
		fmt.Fprintf(conn, "%s\n\n  \n", line) // empty lines are ignored
		a := answer(t, in)
		if a["ok"] != false || a["error"] == "" || a["hint"] == nil || a["code"] != 2.0 || len(fmt.Sprint(a)) > 1000 {
			t.Errorf("%.60q is answered %v", line, a)
		}
	}
	if got := r.all(); len(got) > 0 {
		t.Errorf("the run got %q", got)
	}
	fmt.Fprintf(conn, `{"op":"pause"}`) // the last line can lack its line break
	conn.(*net.UnixConn).CloseWrite()
	if a := answer(t, in); a["ok"] != true {
		t.Errorf("the last line is answered %v", a)
	}
	if rest, err := io.ReadAll(in); err != nil || len(rest) > 0 {
		t.Errorf("after the last answer: %q, %v", rest, err)
	}
}

// Requests can be sent ahead. They are carried out and answered in order.
func TestPipelined(t *testing.T) {
	t.Parallel()
	dir, r := t.TempDir(), &run{hold: make(chan struct{})}
	serve(t, dir, r, 0)
	c := dial(t, dir)
	const n = 100
	for i := range n {
		must(t, c.Send(ctl.Request{Op: ctl.OpTask, Task: json.RawMessage(fmt.Sprintf(`{"id":"%d"}`, i))}))
	}
	must(t, c.Send(ctl.Request{Op: ctl.OpDrain}))
	other := dial(t, dir) // does not wait behind the tasks
	for deadline := time.Now().Add(10 * time.Second); len(r.all()) < n+1 && time.Now().Before(deadline); {
		must(t, other.Do(ctl.Request{Op: ctl.OpStatus}, nil))
	}
	if told := r.all(); len(told) != n+1 || told[n] != "drain" {
		t.Fatalf("%d of %d requests were done before the first task was durable", len(told), n+1)
	}
	close(r.hold)
	for i := range n {
		var a ctl.Accepted
		if err := c.Receive(&a); err != nil || a.Task != fmt.Sprint(i) {
			t.Fatalf("answer %d = %+v, %v", i, a, err)
		}
	}
	must(t, c.Receive(nil))
}

// A client with half a line, one that does not read, and one that disconnects lose only their own
// connection.
func TestBadClients(t *testing.T) {
	t.Parallel()
	dir, r := t.TempDir(), &run{}
	serve(t, dir, r, 300*time.Millisecond)
	half, halfIn := connect(t, dir)
	fmt.Fprint(half, `{"op":"pause`)
	deaf, _ := connect(t, dir)
	deafEnded := make(chan error, 1)
	go func() { // never reads
		var err error
		for err == nil {
			_, err = deaf.Write([]byte(`{"op":"status"}` + "\n"))
		}
		deafEnded <- err
	}()
	gone, _ := connect(t, dir)
	fmt.Fprint(gone, `{"op":"status"}`+"\n")
	gone.Close()
	quiet := dial(t, dir) // idle for longer than the limit for a line
	must(t, dial(t, dir).Do(ctl.Request{Op: ctl.OpPause}, nil))
	if a := answer(t, halfIn); a["ok"] != false || !strings.Contains(fmt.Sprint(a["error"]), "incomplete") {
		t.Errorf("half a line is answered %v", a)
	}
	if _, err := halfIn.ReadByte(); err != io.EOF {
		t.Errorf("the connection of half a line: %v", err)
	}
	select {
	case err := <-deafEnded:
		if errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error("a client that takes no answer is served on")
		}
	case <-time.After(30 * time.Second):
		t.Error("a client that takes no answer is served on")
	}
	must(t, quiet.Do(ctl.Request{Op: ctl.OpResume}, nil))
}

func TestLongLines(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("sends 260 MB")
	}
	dir, r := t.TempDir(), &run{}
	serve(t, dir, r, 0)
	big, err := json.Marshal(map[string]string{"id": "big", "prompt": strings.Repeat("x", 60<<20)})
	must(t, err)
	var all sync.WaitGroup
	for range 3 { // more than are read at a time
		all.Go(func() {
			c, err := ctl.Dial(t.Context(), dir)
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			var a ctl.Accepted
			if err := c.Do(ctl.Request{Op: ctl.OpTask, Task: big}, &a); err != nil || a.Task != "big" {
				t.Errorf("a line of 60 MB: %+v, %v", a, err)
			}
		})
	}
	all.Wait()
	conn, in := connect(t, dir)
	go func() { // ends with the connection
		block := []byte(strings.Repeat("y", 1<<20))
		for range 100 {
			if _, err := conn.Write(block); err != nil {
				return
			}
		}
	}()
	if a := answer(t, in); a["ok"] != false || !strings.Contains(fmt.Sprint(a["error"]), "longer than") {
		t.Errorf("a line without an end is answered %v", a)
	}
}

func TestManyClients(t *testing.T) {
	t.Parallel()
	dir, r := t.TempDir(), &run{}
	serve(t, dir, r, 0)
	var clients []*ctl.Client
	for i := range ctl.MaxClients {
		c := dial(t, dir)
		if err := c.Do(ctl.Request{Op: ctl.OpPause}, nil); err != nil {
			t.Fatalf("client %d: %v", i, err)
		}
		clients = append(clients, c)
	}
	err := dial(t, dir).Receive(nil)
	if no, ok := errors.AsType[*ctl.RefusedError](err); !ok || exit.HintOf(no.Exit()) == "" {
		t.Errorf("one client too many: %v", err)
	}
	clients[0].Close()
	for deadline := time.Now().Add(10 * time.Second); ; { // the slot is free when the server has noticed
		c := dial(t, dir)
		err := c.Do(ctl.Request{Op: ctl.OpResume}, nil)
		if err == nil {
			break
		}
		if c.Close(); time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	must(t, clients[1].Do(ctl.Request{Op: ctl.OpPause}, nil))
}

// When Serve ends, a waiting call is canceled through its context, and it is still answered.
func TestEnd(t *testing.T) {
	t.Parallel()
	dir, r := t.TempDir(), &run{hold: make(chan struct{})}
	end := serve(t, dir, r, 0)
	c := dial(t, dir)
	must(t, c.Send(ctl.Request{Op: ctl.OpTask, Task: json.RawMessage(`{"id":"a"}`)}))
	for deadline := time.Now().Add(10 * time.Second); len(r.all()) == 0 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	end()
	if _, ok := errors.AsType[*ctl.RefusedError](c.Receive(nil)); !ok {
		t.Error("a task that was not accepted is not answered")
	}
}

// must fails the test at err.
func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

func TestPaths(t *testing.T) {
	t.Parallel()
	long := filepath.Join(t.TempDir(), strings.Repeat("d", 100), strings.Repeat("e", 100), strings.Repeat("f", 100))
	must(t, os.MkdirAll(long, 0o755))
	serve(t, long, &run{}, 0)
	if err := dial(t, long).Do(ctl.Request{Op: ctl.OpPause}, nil); err != nil {
		t.Errorf("a path of %d bytes: %v", len(ctl.Path(long)), err)
	}
	info, err := os.Lstat(ctl.Path(long))
	if err != nil || info.Mode() != fs.ModeSocket|0o600 {
		t.Errorf("the socket: %v, %v", info, err)
	}
	entries, err := os.ReadDir(long)
	if err != nil || len(entries) != 1 {
		t.Errorf("the folder has %v, %v", entries, err)
	}
}

// Without /proc, the path uses a link, which is removed afterwards.
func TestLinked(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	long := filepath.Join(t.TempDir(), strings.Repeat("d", 200))
	must(t, os.Mkdir(long, 0o755))
	serve(t, long, &run{}, 0)
	err := ctl.Linked(long, ctl.Name, func(address string) error {
		if len(address) > 100 {
			t.Errorf("the address %q has %d bytes", address, len(address))
		}
		conn, err := net.Dial("unix", address)
		if err == nil {
			err = conn.Close()
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	t.Setenv("TMPDIR", long)
	if err := ctl.Linked(long, ctl.Name, func(string) error { return nil }); err == nil {
		t.Error("no complaint about a folder for temporary files with a long path")
	}
}

// The socket of a killed process is replaced. A file of another kind is not.
func TestStale(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: ctl.Path(dir), Net: "unix"})
	must(t, err)
	l.SetUnlinkOnClose(false)
	l.Close()
	for name, dir := range map[string]string{"a stale socket": dir, "no socket": t.TempDir()} {
		if _, err := ctl.Dial(t.Context(), dir); exit.Code(err) != exit.Unusable || !strings.Contains(exit.HintOf(err), "--resume") {
			t.Errorf("dialing %s: %v, hint %q", name, err, exit.HintOf(err))
		}
	}
	serve(t, dir, &run{}, 0)
	must(t, dial(t, dir).Do(ctl.Request{Op: ctl.OpPause}, nil))
	for _, put := range []func(string) error{
		func(path string) error { return os.WriteFile(path, []byte("mine"), 0o644) },
		func(path string) error { return os.Mkdir(path, 0o755) },
		func(path string) error { return os.Symlink("elsewhere", path) },
	} {
		dir := t.TempDir()
		must(t, put(ctl.Path(dir)))
		if _, err := ctl.Listen(dir); exit.Code(err) != exit.Folder || exit.HintOf(err) == "" {
			t.Errorf("in place of something else: %v", err)
		}
	}
}

// On a file system without sockets, the error has a remedy. mknod(2) returns EPERM in that case,
// and EACCES for missing permissions.
func TestNoSockets(t *testing.T) {
	t.Parallel()
	const dir = "/proc/self/fdinfo"
	if _, err := os.Stat(dir); err == nil {
		if _, err := ctl.Listen(dir); exit.Code(err) != exit.Storage || !strings.Contains(err.Error(), ctl.Path(dir)) {
			t.Errorf("Listen in %s = %v", dir, err)
		}
	}
	for no, want := range map[syscall.Errno]bool{syscall.EPERM: true, syscall.EOPNOTSUPP: true, syscall.EACCES: false, syscall.ENOSPC: false} {
		err := ctl.Unbound("run/ctl.sock", &net.OpError{Op: "listen", Addr: &net.UnixAddr{Name: "/proc/self/fd/9/x"}, Err: os.NewSyscallError("bind", no)})
		if errors.Is(err, errors.ErrUnsupported) != want || (exit.HintOf(err) != "") != want || exit.Code(err) != exit.Storage || strings.Contains(err.Error(), "/proc") {
			t.Errorf("%v: %v, hint %q", no, err, exit.HintOf(err))
		}
	}
}

package stream_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/runfolder"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/stream"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/tasks"
	"github.com/rollout-rl/rollout/collector"
)

// newIntake returns the intake of a run without tasks, in a new folder.
func newIntake(t *testing.T) (*stream.Intake, *runfolder.TaskLog, string) {
	t.Helper()
	folder := &runfolder.Folder{Dir: t.TempDir(), Mode: 0o600}
	set, err := runfolder.NoTasks(folder.Dir, folder.Mode)
	if err == nil {
		err = folder.Create(runfolder.Info{}, set)
	}
	must(t, err)
	log, err := folder.OpenTaskLog(set)
	must(t, err)
	t.Cleanup(func() { _ = log.Close() })
	check := func(task *collector.Task) error {
		if task.Agent != nil {
			return &tasks.BadError{Place: "here", Err: errors.New("agent: no such model")}
		}
		return nil
	}
	return stream.New(stream.Config{Log: log, Samples: 4, Check: check, Accepted: func(int) {}}), log, folder.TasksPath()
}

func given(in *stream.Intake) (ids []string) {
	for t, err := range in.More(context.Background()) {
		if err != nil {
			return append(ids, err.Error())
		}
		ids = append(ids, t.ID)
	}
	return ids
}

// TestEndMeetsTasks checks that tasks that are being written at the end are accepted and delivered.
func TestEndMeetsTasks(t *testing.T) {
	t.Parallel()
	in, _, _ := newIntake(t)
	receipts := in.Add(&collector.Task{ID: "a", Messages: []string{"x"}}, &collector.Task{ID: "b", Messages: []string{"x"}})
	in.End("drain")
	if got := given(in); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("the collector is given %q, want both tasks", got)
	}
	for _, r := range receipts() {
		if r.Err != nil || r.Again {
			t.Errorf("receipt %+v, want accepted", r)
		}
	}
}

// TestReadBadLines checks that a bad line is reported with its number and reason, and that the
// lines around it are accepted.
func TestReadBadLines(t *testing.T) {
	t.Parallel()
	in, _, path := newIntake(t)
	long := `{"id":"long","prompt":"` + strings.Repeat("x", tasks.MaxTaskBytes) + `"}`
	lines := []string{
		"\xef\xbb\xbf" + `{"id":"a","prompt":"x"}`, "", `{"id":"b","prompt":"x"`, "nonsense", long, `{"id":"c","prompt":"x","samples":2}`,
		`{"id":"a","prompt":"x"}`, `{"id":"a","prompt":"other"}`, "\x00\x00", `{"id":"d","prompt":"x","size":1}`, `{"id":"e","prompt":"x","agent":{"model":"?"}}`,
		`{"id":"f","prompt":"x","deadline":-1}`, `{"id":"g","prompt":"x","deadline":60}`, `{"id":"g","prompt":"x","deadline":"2020-01-01T00:00:00Z"}`, `{"id":"h","prompt"`,
	}
	var got []string
	err := in.Read(strings.NewReader(strings.Join(lines, "\n")), "stdin", func(task *collector.Task, r stream.Receipt) {
		if r.Err != nil {
			text, _, _ := strings.Cut(r.Err.Error(), ":")
			got = append(got, fmt.Sprintf("%d refused %s %s", task.Line, task.ID, text))
			return
		}
		got = append(got, fmt.Sprintf("%d %s ×%d %v", task.Line, task.ID, r.Samples, r.Again))
	})
	want := []string{
		"1 a ×4 false", "3 refused  not a JSON object", "4 refused  not a JSON object", "5 refused  the line is longer than 64 MiB", "6 c ×2 false",
		"7 a ×4 true", `8 refused a id "a" belongs to an accepted task with different messages, agent, answer, metadata or samples`,
		"9 refused  not a JSON object", "10 refused  size", "11 refused e agent", "12 refused f deadline", "13 g ×4 false", "14 g ×4 true", "15 refused  not a JSON object",
	}
	want[3] = "5 refused  the line is longer than " + strings.TrimPrefix(got[3], "5 refused  the line is longer than ")
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("error %v\n got %q\nwant %q", err, got, want)
	}
	in.End("end of tasks")
	if ids := given(in); !slices.Equal(ids, []string{"a", "c", "g"}) {
		t.Errorf("given %q", ids)
	}
	wantLines(t, path, 3)
}

// TestReadWhileOpen checks that a producer gets its receipts while its pipe is open, and that its
// tasks are delivered at once.
func TestReadWhileOpen(t *testing.T) {
	t.Parallel()
	in, _, path := newIntake(t)
	r, w := io.Pipe()
	told := make(chan string)
	var reading sync.WaitGroup
	reading.Go(func() {
		_ = in.Read(r, "stdin", func(task *collector.Task, r stream.Receipt) { told <- task.ID })
	})
	next := make(chan string)
	reading.Go(func() {
		for task := range in.More(context.Background()) {
			next <- task.ID
		}
	})
	for i := range 3 {
		if _, err := fmt.Fprintf(w, "\n"+`{"id":"%d","prompt":"x"}`+"\n \n{\"id\":", i); err != nil { // blank lines do not block
			t.Fatal(err)
		}
		if got := <-told; got != fmt.Sprint(i) {
			t.Fatalf("got %s, want %d", got, i)
		}
		wantLines(t, path, i+1)
		if got := <-next; got != fmt.Sprint(i) {
			t.Fatalf("given %s, want %d", got, i)
		}
		if _, err := fmt.Fprintf(w, "\"%d\",\"prompt\":7}\n", i); err != nil { // a bad line
			t.Fatal(err)
		}
		<-told
	}
	must(t, w.Close())
	in.End("end of tasks")
	reading.Wait()
}

// TestFlood checks that an endless producer blocks once MaxWaiting tasks are accepted and not
// started, and continues as they start.
func TestFlood(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		in, _, _ := newIntake(t)
		produced := 0
		flood := func(yield func(collector.Task, error) bool) {
			for {
				produced++
				if !yield(collector.Task{ID: fmt.Sprint(produced), Messages: []string{"x"}}, nil) {
					return
				}
			}
		}
		groups := make(chan string, 3*stream.MaxWaiting)
		go func() {
			_ = in.Take(flood, nil, func(_ *collector.Task, r stream.Receipt) {
				if r.Err == nil {
					groups <- r.Group
				}
			})
		}()
		synctest.Wait()
		const least, most = stream.MaxWaiting, stream.MaxWaiting + 256
		if n := len(groups); n < least || n > most {
			t.Errorf("%d tasks are accepted, want %d to %d", n, least, most)
		}
		for range 1000 {
			in.Begun(<-groups)
		}
		synctest.Wait()
		if n := len(groups); n < least || n > most {
			t.Errorf("%d tasks are accepted but not started, want %d to %d", n, least, most)
		}
		in.HoldUnread(true)
		for range 1000 {
			in.Begun(<-groups)
		}
		synctest.Wait()
		if n := len(groups); n > most-1000 {
			t.Errorf("%d tasks are accepted but not started while too much is unread", n)
		}
		in.HoldUnread(false)
		synctest.Wait()
		if n := len(groups); n < least || n > most {
			t.Errorf("%d tasks are accepted but not started, want %d to %d", n, least, most)
		}
		in.HoldUnread(true)
		in.End("end")
		synctest.Wait()
		if r := in.Add(&collector.Task{ID: "late", Messages: []string{"x"}})(); r[0].Err == nil {
			t.Error("a task was accepted after the end")
		}
	})
}

// TestDeadlineCountsFromAcceptance checks that seconds until a deadline count once, from the
// acceptance of the task. A repeated task keeps its deadline.
func TestDeadlineCountsFromAcceptance(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		in, _, _ := newIntake(t)
		full := make([]*collector.Task, stream.MaxWaiting)
		for i := range full {
			full[i] = &collector.Task{ID: fmt.Sprint(i), Messages: []string{"x"}}
		}
		first := in.Add(full...)()[0]
		var accepted, again time.Time
		var waiting sync.WaitGroup
		waiting.Go(func() {
			line := `{"id":"late","prompt":"x","deadline":60}` + "\n"
			_ = in.Read(strings.NewReader(line), "stdin", func(*collector.Task, stream.Receipt) { accepted = time.Now() })
			time.Sleep(time.Minute)
			_ = in.Read(strings.NewReader(line), "stdin", func(*collector.Task, stream.Receipt) { again = time.Now() })
		})
		time.Sleep(time.Hour)
		in.Begun(first.Group)
		in.Begun(collector.GroupID(&collector.Task{ID: "1", Messages: []string{"x"}}))
		waiting.Wait()
		in.End("end of tasks")
		var got []time.Time
		for task := range in.More(context.Background()) {
			if task.ID == "late" {
				got = append(got, task.Deadline)
			}
		}
		if want := accepted.Add(time.Minute); len(got) != 1 || !got[0].Equal(want) || !again.Equal(want) {
			t.Errorf("the deadline of the task is %v, want %v: it was accepted at %v, and came again at %v", got, want, accepted, again)
		}
	})
}

// TestManyProducers checks concurrent producers: each task is accepted once, all accepted tasks are
// delivered, and repeats are recognized.
func TestManyProducers(t *testing.T) {
	t.Parallel()
	in, _, path := newIntake(t)
	var fresh, again atomic.Int64
	var producers sync.WaitGroup
	for range 8 {
		producers.Go(func() {
			for i := range 100 {
				r := in.Add(&collector.Task{ID: fmt.Sprint(i), Messages: []string{"x"}})()[0]
				switch {
				case r.Err != nil:
					t.Error(r.Err)
				case r.Again:
					again.Add(1)
				default:
					fresh.Add(1)
				}
			}
		})
	}
	producers.Wait()
	in.End("end of tasks")
	ids := given(in)
	slices.Sort(ids)
	if fresh.Load() != 100 || again.Load() != 700 || len(slices.Compact(ids)) != 100 || len(ids) != 100 {
		t.Errorf("%d accepted, %d again, %d given", fresh.Load(), again.Load(), len(ids))
	}
	wantLines(t, path, 100)
}

// TestFullDisk checks that tasks that cannot be written are rejected, and that the run gets the
// error, with its exit code, after the accepted tasks.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	in, log, path := newIntake(t)
	if r := in.Add(&collector.Task{ID: "a", Messages: []string{"x"}})(); r[0].Err != nil {
		t.Fatal(r[0].Err)
	}
	if err := log.Close(); err != nil { // every later write fails
		t.Fatal(err)
	}
	for _, id := range []string{"b", "c"} {
		if r := in.Add(&collector.Task{ID: id, Messages: []string{"x"}})(); exit.Code(r[0].Err) != exit.Storage {
			t.Errorf("task %s: %v", id, r[0].Err)
		}
	}
	var end error
	for _, err := range in.More(context.Background()) {
		end = err
	}
	if exit.Code(end) != exit.Storage {
		t.Errorf("the run got: %v", end)
	}
	wantLines(t, path, 1)
}

// must fails the test at err.
func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// wantLines checks the number of lines of a file.
func wantLines(t *testing.T, path string, n int) {
	t.Helper()
	body, err := os.ReadFile(path)
	if err != nil || bytes.Count(body, []byte("\n")) != n {
		t.Fatalf("%v, want %d lines: %s", err, n, body)
	}
}

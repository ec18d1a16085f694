package show

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/termsafe"
)

// jsonDisplay returns a display of events, and the pipe that reads them.
func jsonDisplay() (*Display, *io.PipeReader) {
	r, w := io.Pipe()
	d := NewDisplay(termsafe.NewWriter(w), termsafe.NewWriter(io.Discard), func(string) string { return "" }, true, false)
	return d, r
}

// TestUnreadOrder checks that writers of events do not wait for the reader, who gets all events in
// order.
func TestUnreadOrder(t *testing.T) {
	t.Parallel()
	d, r := jsonDisplay()
	const tellers, each = 4, 2000
	var telling sync.WaitGroup
	for k := range tellers {
		telling.Go(func() {
			for i := range each {
				d.Event("e", map[string]any{"k": k, "i": i})
			}
		})
	}
	telling.Wait()
	if events, _ := d.Flush(time.Millisecond); events {
		t.Error("everything is read without a reader")
	}
	go func() {
		d.Flush(time.Hour)
		_ = r.Close()
	}()
	body, _ := io.ReadAll(r)
	next := make([]int, tellers)
	for line := range strings.Lines(string(body)) {
		var k, i int
		if _, err := fmt.Sscanf(line, `{"event":"e","i":%d,"k":%d}`, &i, &k); err != nil || next[k] != i {
			t.Fatalf("%q, want %d of teller %d (%v)", line, next[k], k, err)
		}
		next[k]++
	}
	if !slices.Equal(next, []int{each, each, each, each}) {
		t.Errorf("%v were read of %d each", next, each)
	}
}

// TestUnreadStatus checks that no further status is written while one is unread.
func TestUnreadStatus(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, r := jsonDisplay()
		for range 100 {
			d.show(midway())
		}
		d.Event("e", nil)
		go func() {
			d.Flush(time.Hour)
			d.show(midway())
			d.Flush(time.Hour)
			_ = r.Close()
		}()
		body, _ := io.ReadAll(r)
		if n := bytes.Count(body, []byte(`"event":"status"`)); n != 2 {
			t.Errorf("%d statuses were sent, want 2:\n%s", n, body)
		}
	})
}

// TestOnUnread checks that the callback reports when too much is unread, and when less is.
func TestOnUnread(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, r := jsonDisplay()
		var told []bool
		d.OnUnread(func(on bool) { told = append(told, on) })
		line := map[string]any{"text": strings.Repeat("x", 1000)}
		tell := func(n int) {
			for range n {
				d.Event("e", line)
			}
			synctest.Wait()
		}
		tell(1000)
		if len(told) > 0 {
			t.Errorf("a megabyte is too much: %v", told)
		}
		tell(200)
		if !slices.Equal(told, []bool{true}) {
			t.Errorf("more than a megabyte: %v", told)
		}
		_, _ = io.CopyN(io.Discard, r, 500_000)
		tell(1)
		if !slices.Equal(told, []bool{true}) {
			t.Errorf("700 kB are left: %v", told)
		}
		go func() { _, _ = io.Copy(io.Discard, r) }()
		if events, _ := d.Flush(time.Hour); !events || !slices.Equal(told, []bool{true, false}) {
			t.Errorf("nothing is left: %v", told)
		}
		_ = r.Close()
	})
}

// TestReaderGone checks that a missing reader blocks nothing.
func TestReaderGone(t *testing.T) {
	t.Parallel()
	d, r := jsonDisplay()
	d.Event("e", nil)
	_ = r.Close()
	for range 1000 {
		d.Event("e", nil)
	}
	if events, messages := d.Flush(time.Minute); !events || !messages {
		t.Error("a reader that is gone is waited for")
	}
}

// TestNothingAfterDone checks that done is the last event. Later messages are only for people.
func TestNothingAfterDone(t *testing.T) {
	t.Parallel()
	var out, talk bytes.Buffer
	d := NewDisplay(termsafe.NewWriter(&out), termsafe.NewWriter(&talk), func(string) string { return "" }, true, false)
	d.Finish(&Summary{})
	d.Event("refused", nil)
	d.Say("late")
	d.Flush(time.Hour)
	if !strings.HasPrefix(out.String(), `{"event":"done",`) || strings.Count(out.String(), "\n") != 1 || talk.String() != "rollout: late\n" {
		t.Errorf("events %q, messages %q", out.String(), talk.String())
	}
}

package store

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/collector/session"
)

func full(*os.File, []byte, int64) (int, error) { return 0, syscall.ENOSPC }

func admit(tb testing.TB, x *Session) *Admission {
	tb.Helper()
	a, err := x.Admit(nil)
	if err != nil {
		tb.Fatal(err)
	}
	return a
}

// TestLostFolder proves that the store reports an error while its folder is missing, and continues
// when it is back.
func TestLostFolder(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "sessions")
	s := openQuiet(t, osDisk(), Config{Dir: dir})
	defer s.Close()
	x, talk := must(t, s), newTalk(1)
	first, c := admit(t, x), talk.next()
	if err := first.Add(c, talk.messages, talk.tools); err != nil {
		t.Fatal(err)
	}
	talk.grow(c)
	s.syncDirty() // closes the file
	if err := os.Rename(dir, dir+".away"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Begin(session.Head{}); err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("a session began in a missing folder: %v", err)
	}
	a, c := admit(t, x), talk.next()
	if err := a.Add(c, talk.messages, talk.tools); err == nil || !strings.Contains(err.Error(), dir) || x.Refused() != err {
		t.Errorf("a call was added to a missing folder: %v, %v", err, x.Refused())
	}
	if err := first.Delivered(); err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("a delivery was recorded in a missing folder: %v", err)
	}
	if _, err := s.Sealed(""); err == nil {
		t.Error("a missing folder has an empty list")
	}
	if err := os.Rename(dir+".away", dir); err != nil {
		t.Fatal(err)
	}
	if err := a.Add(c, talk.messages, talk.tools); err != nil || x.Refused() != nil {
		t.Errorf("%v, %v", err, x.Refused())
	}
	a.Done()
	first.Done()
	if e, err := x.End(t.Context(), session.End{}, false); err != nil || e.Calls != 2 {
		t.Errorf("%+v, %v", e, err)
	}
	if rec, err := s.Read(x.id); err != nil || len(rec.Calls) != 2 || !rec.Calls[0].Delivered || rec.Calls[1].Delivered {
		t.Errorf("%+v, %v", rec, err)
	}
	if err := s.Stats().Err; err != nil {
		t.Errorf("the stats report %v", err)
	}
}

// TestDeliveredLater proves that a delivery that could not be written is not lost: the next call, End,
// the background or Close writes it.
func TestDeliveredLater(t *testing.T) {
	t.Parallel()
	for _, by := range []string{"call", "end", "background", "idle", "close"} {
		cfg := Config{Dir: t.TempDir()}
		s := openQuiet(t, osDisk(), cfg)
		x, talk := must(t, s), newTalk(1)
		a, other := admit(t, x), admit(t, x)
		if err := a.Add(talk.next(), talk.messages, talk.tools); err != nil {
			t.Fatal(err)
		}
		s.disk.write = full
		if err := a.Delivered(); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("%s: Delivered returns %v", by, err)
		}
		if err := a.Delivered(); err == nil || errors.Is(err, syscall.ENOSPC) {
			t.Errorf("%s: Delivered returns %v again", by, err)
		}
		a.Done()
		if err := other.Add(talk.next(), talk.messages, talk.tools); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("%s: Add returns %v", by, err)
		}
		s.disk.write = (*os.File).WriteAt
		var err error
		switch by {
		case "call":
			err = other.Add(talk.next(), talk.messages, talk.tools)
		case "end":
			other.Done()
			s.disk.write = full
			if _, err := x.End(t.Context(), session.End{}, false); !errors.Is(err, syscall.ENOSPC) || s.IsSealed(x.id) {
				t.Errorf("End returns %v", err)
			}
			s.disk.write = (*os.File).WriteAt
			_, err = x.End(t.Context(), session.End{}, false)
		case "background":
			s.clean(time.Now())
		case "idle":
			other.Done()
			x.state = nil // as after idleAfter
			err = s.Close()
		case "close":
			err = s.Close()
		}
		if err != nil {
			t.Errorf("%s: %v", by, err)
		}
		if len(x.owed) > 0 {
			t.Errorf("%s: the delivery is not written", by)
		}
		if err := s.Close(); err != nil {
			t.Errorf("%s: %v", by, err)
		}
		s = openQuiet(t, osDisk(), cfg)
		if rec, err := s.Read(x.id); err != nil || !rec.Calls[0].Delivered || (rec.End != nil) != (by == "end") {
			t.Errorf("%s: %+v, %v", by, rec, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestRefused proves that a call that could not be added is reported until it, or a call that was
// admitted later, is added: a concurrent call is not its retry.
func TestRefused(t *testing.T) {
	t.Parallel()
	s := openQuiet(t, osDisk(), Config{Dir: t.TempDir()})
	defer s.Close()
	x, talk := must(t, s), newTalk(1)
	for _, retry := range []string{"same", "later"} {
		a, concurrent, big := admit(t, x), admit(t, x), admit(t, x)
		s.disk.write = full
		refused := a.Add(talk.next(), talk.messages, talk.tools)
		s.disk.write = (*os.File).WriteAt
		if !errors.Is(refused, syscall.ENOSPC) || x.Refused() != refused {
			t.Errorf("%s: Add returns %v, Refused %v", retry, refused, x.Refused())
		}
		if err := concurrent.Add(talk.next(), talk.messages, talk.tools); err != nil || concurrent.Delivered() != nil || x.Refused() != refused {
			t.Errorf("%s: after a concurrent call: %v, Refused %v", retry, err, x.Refused())
		}
		if err := big.Add(talk.next(), talk.messages, make([]byte, maxPayload)); !errors.Is(err, ErrTooLarge) || x.Refused() != refused {
			t.Errorf("%s: after a call that is too large: %v, Refused %v", retry, err, x.Refused())
		}
		if retry == "later" {
			a.Done()
			a = admit(t, x)
		}
		if err := a.Add(talk.next(), talk.messages, talk.tools); err != nil || x.Refused() != nil {
			t.Errorf("%s: %v, Refused %v", retry, err, x.Refused())
		}
		for _, a := range []*Admission{a, concurrent, big} {
			a.Done()
		}
	}
}

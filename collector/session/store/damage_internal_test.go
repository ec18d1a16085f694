package store

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/collector/session"
	"github.com/rollout-rl/rollout/sink/frame"
)

// sample returns the bytes of the file of a session with some calls, and its record. If synced is
// true, marks vouch for all calls.
func sample(t *testing.T, sealed, synced bool) ([]byte, *session.Record) {
	t.Helper()
	s := openQuiet(t, osDisk(), Config{Dir: t.TempDir()})
	defer s.Close()
	key, err := s.Begin(session.Head{Began: time.Unix(1_800_000_000, 0).UTC()})
	if err != nil {
		t.Fatal(err)
	}
	x, _ := s.Session(key)
	talk := newTalk(7)
	talk.prompt, talk.tools, talk.messages = talk.prompt[:70], talk.tools[:40:40], talk.messages[1:]
	for range 3 {
		c := talk.next()
		c.Output, c.Logprobs, c.Answer = c.Output[:20], c.Logprobs[:20], c.Answer[:50]
		a, err := x.Admit(nil)
		if err == nil {
			err = a.Add(c, talk.messages, talk.tools)
		}
		if err != nil {
			t.Fatal(err)
		}
		a.Done()
		talk.prompt = append(append(slices.Clip(talk.prompt), c.Output...), some(talk.r, 10)...)
		talk.messages = append(talk.messages, c.Answer)
		if synced {
			x.syncInBackground()
		}
	}
	if sealed {
		seal(t, x)
	}
	rec, err := s.Read(x.id)
	if err != nil {
		t.Fatal(err)
	}
	path := x.path
	if name, ok := s.sealedName(x.id); ok {
		path = s.sealedPath(name)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b, rec
}

func parse(b []byte, id string) (*session.Record, error) {
	return readRecord(bytes.NewReader(b), int64(len(b)), id, true)
}

// TestSealedDamage proves that a sealed file that was cut, extended or changed in any bit is
// reported as damaged, and that no part of it is returned.
func TestSealedDamage(t *testing.T) {
	t.Parallel()
	b, want := sample(t, true, true)
	if rec, err := parse(b, want.ID); err != nil || !reflect.DeepEqual(rec, want) {
		t.Fatalf("%+v, %v", rec, err)
	}
	refused := func(what string, at int, b []byte) {
		if rec, err := parse(b, want.ID); rec != nil || !errors.Is(err, ErrDamaged) {
			t.Fatalf("%s at %d: %+v, %v", what, at, rec, err)
		}
	}
	for at := range b {
		refused("cut", at, b[:at])
		for bit := range 8 {
			if at >= 16 && at < 20 && bit < 2 {
				continue // another version: a different error
			}
			if testing.Short() && at%8 != bit {
				continue
			}
			b[at] ^= 1 << bit
			refused("bit", at, b)
			b[at] ^= 1 << bit
		}
	}
	for _, more := range []string{"\x00", "a", "\xffRL\xfe", string(make([]byte, 600)), string(b)} {
		refused("more bytes", len(b), append(bytes.Clone(b), more...))
	}
	r := rand.New(rand.NewPCG(32, 1))
	for range 500 {
		at := r.IntN(len(b))
		n := 1 + r.IntN(len(b)-at)
		refused("a part is missing", at, append(bytes.Clone(b[:at]), b[at+n:]...))
		if zero := append(append(bytes.Clone(b[:at]), make([]byte, n)...), b[at+n:]...); !bytes.Equal(zero, b) {
			refused("zeros", at, zero)
		}
	}
	other, _ := sample(t, true, true)
	refused("another session's file", 0, other)
}

// TestDigest proves that a file from which whole payloads are missing, or in which they are in
// another order, does not match its end.
func TestDigest(t *testing.T) {
	t.Parallel()
	b, want := sample(t, true, false)
	var payloads [][]byte
	f, err := frame.NewReader(bytes.NewReader(b), int64(len(b)), header(want.ID))
	for err == nil {
		var p []byte
		if p, err = f.Next(); err == nil {
			payloads = append(payloads, bytes.Clone(p))
		}
	}
	if err != io.EOF {
		t.Fatal(err)
	}
	if rec, err := parse(fileOf(t, want.ID, payloads...), want.ID); err != nil || !reflect.DeepEqual(rec, want) {
		t.Fatalf("%+v, %v", rec, err)
	}
	for i := range payloads {
		var less [][]byte
		for k, p := range payloads {
			if k != i {
				less = append(less, p)
			}
		}
		if rec, err := parse(fileOf(t, want.ID, less...), want.ID); !errors.Is(err, ErrDamaged) {
			t.Errorf("without payload %d: %+v, %v", i, rec, err)
		}
		if i == 0 {
			continue
		}
		payloads[i], payloads[i-1] = payloads[i-1], payloads[i]
		if rec, err := parse(fileOf(t, want.ID, payloads...), want.ID); !errors.Is(err, ErrDamaged) {
			t.Errorf("payloads %d and %d swapped: %+v, %v", i-1, i, rec, err)
		}
		payloads[i], payloads[i-1] = payloads[i-1], payloads[i]
	}
}

// fileOf returns a file with these payloads.
func fileOf(t *testing.T, id string, payloads ...[]byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := frame.NewWriter(&b, header(id))
	for _, p := range payloads {
		if err == nil {
			err = w.Write(p)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestOpenDamage proves what a later process makes of the damaged file of an open session. A cut, as
// a crash leaves it, drops the last calls only: the session then continues. A changed bit makes the
// session unusable, or drops calls that were never synced.
func TestOpenDamage(t *testing.T) {
	t.Parallel()
	for _, synced := range []bool{false, true} {
		b, want := sample(t, false, synced)
		s := openQuiet(t, osDisk(), Config{Dir: t.TempDir()})
		defer s.Close()
		s.disk.sync = func(*os.File) error { return nil } // thousands of syncs
		load := func(b []byte) (*Session, *session.Record, error) {
			x := s.newSession(want.ID)
			x.size = -1
			_ = os.Remove(x.path) // some file systems sync a file that is truncated and written again
			if err := os.WriteFile(x.path, b, 0o666); err != nil {
				t.Fatal(err)
			}
			x.mu.Lock()
			err := x.load()
			x.mu.Unlock()
			if err != nil {
				return x, nil, err
			}
			if info, err := os.Stat(x.path); err != nil || info.Size() != x.size {
				t.Fatalf("the file has %d bytes, want %d, %v", info.Size(), x.size, err)
			}
			rec, err := x.read()
			return x, rec, err
		}
		begins := func(rec *session.Record) bool {
			return len(rec.Calls) <= len(want.Calls) && (len(rec.Calls) == 0 || reflect.DeepEqual(rec.Calls, want.Calls[:len(rec.Calls)]))
		}
		kept := 0
		for at := len(b); at >= 0; at-- {
			x, rec, err := load(b[:at])
			switch {
			case errors.Is(err, errNoHead):
				if kept > 0 || at > 400 {
					t.Fatalf("cut at %d: %v", at, err)
				}
				continue
			case err != nil || !begins(rec) || at < len(b) && len(rec.Calls) > kept || at == len(b) && len(rec.Calls) != 3:
				t.Fatalf("cut at %d: %+v, %v", at, rec, err)
			}
			kept = len(rec.Calls)
			if at%53 == 0 { // the session continues
				newTalk(9).add(t, x)
				again, err := x.read()
				if err != nil || len(again.Calls) != kept+1 || !begins(&session.Record{Calls: again.Calls[:kept]}) {
					t.Fatalf("cut at %d, continued: %+v, %v", at, again, err)
				}
			}
			x.mu.Lock()
			x.close()
			x.mu.Unlock()
		}
		if marked := string(b[len(b)-frame.Overhead:][:4]) == "\xffRS\xfe"; marked != synced {
			t.Errorf("synced %t: the file ends with a mark: %t", synced, marked)
		}
		// The last call was overwritten with zeros. If it was synced, that is damage.
		last, r := int64(0), bytes.NewReader(b)
		f, err := frame.NewReader(r, r.Size(), header(want.ID))
		for at := int64(0); err == nil; at = f.Offset() {
			if _, err = f.Next(); err == nil {
				last = at
			}
		}
		zeros := bytes.Clone(b)
		if clear(zeros[last:]); synced {
			copy(zeros[len(b)-frame.Overhead:], b[len(b)-frame.Overhead:]) // the mark
		}
		if _, rec, err := load(zeros); synced != errors.Is(err, ErrDamaged) || !synced && (err != nil || len(rec.Calls) != 2) {
			t.Errorf("zeros, synced %t: record %t, %v", synced, rec != nil, err)
		}
		damaged := 0
		for at := range b {
			b[at] ^= 1 << (at % 8)
			x, rec, err := load(b)
			b[at] ^= 1 << (at % 8)
			if at >= 16 && at < 20 && err != nil { // another version
				continue
			}
			switch {
			case errors.Is(err, ErrDamaged):
				damaged++
				if _, err := x.Admit(nil); !errors.Is(err, ErrDamaged) {
					t.Fatalf("bit at %d: a damaged session admits a call: %v", at, err)
				}
			case err != nil && !errors.Is(err, errNoHead) || err == nil && (!begins(rec) || len(rec.Calls) == len(want.Calls) && at < len(b)-frame.Overhead):
				t.Fatalf("bit at %d: %+v, %v", at, rec, err)
			}
			x.mu.Lock()
			x.close()
			x.mu.Unlock()
		}
		if damaged < len(b)*9/10 {
			t.Errorf("%d of %d damaged files are reported", damaged, len(b))
		}
		if err := os.Remove(filepath.Join(s.cfg.Dir, openFolder, want.ID+extension)); err != nil {
			t.Error(err)
		}
	}
}

// TestDamagedNeighbors proves that damaged and foreign files do not keep the store from opening, and
// do not affect other sessions.
func TestDamagedNeighbors(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := Open(Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	var keys []session.Key
	for n := range uint64(6) {
		key, err := s.Begin(session.Head{})
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, key)
		x, _ := s.Session(key)
		newTalk(n).add(t, x)
		if n >= 3 {
			seal(t, x)
		}
	}
	entries, _ := s.Sealed("")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Join(dir, openFolder, keys[0].ID()+extension), s.sealedPath(entries[0].Name)} {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		b[len(b)/2]++
		if err := os.WriteFile(path, b, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	strange := []string{"open/x.session", "open/notes", "sealed/1.session", "sealed/y-" + keys[0].ID() + ".session", "open/" + keys[1].ID(), "lock"}
	for _, name := range strange {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("9999999999999999999"), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, openFolder, newKeyID()+extension), 0o777); err != nil {
		t.Fatal(err)
	}
	// A process can be killed before it has written the head.
	half := session.NewKey()
	if err := os.WriteFile(filepath.Join(dir, openFolder, half.ID()+extension), []byte("rollout"), 0o666); err != nil {
		t.Fatal(err)
	}
	if s, err = Open(Config{Dir: dir}); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := os.Stat(filepath.Join(dir, openFolder, half.ID()+extension)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file without a head is left: %v", err)
	}
	if _, err := s.Session(half); !errors.Is(err, ErrUnknown) || s.Stats().Open != 3 {
		t.Errorf("%v, %+v", err, s.Stats())
	}
	for i, key := range keys {
		rec, err := s.Read(key.ID())
		if i%3 == 0 && !errors.Is(err, ErrDamaged) || i%3 != 0 && (err != nil || len(rec.Calls) != 1) {
			t.Errorf("session %d: %+v, %v", i, rec, err)
		}
		x, err := s.Session(key)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := x.End(t.Context(), session.End{}, false); i%3 == 0 && !errors.Is(err, ErrDamaged) || i%3 != 0 && err != nil {
			t.Errorf("session %d: End returns %v", i, err)
		}
	}
	if again, err := s.Sealed(""); err != nil || len(again) != 5 || again[4].Name <= again[3].Name {
		t.Errorf("%+v, %v", again, err)
	}
}

func newKeyID() string { return session.NewKey().ID() }

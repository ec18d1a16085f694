package store_test

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rollout-rl/rollout/sink/store"
	"github.com/rollout-rl/rollout/sink/store/storetest"
)

// TestStores runs the same tests on a folder, on the test server, on the test server behind a proxy that
// spoils every fourth request, and on each bucket in STORES, without and with such a proxy. STORES
// contains a name, "=" and the location for each bucket.
func TestStores(t *testing.T) {
	t.Parallel()
	stores := map[string]func() store.Store{
		"folder": func() store.Store { return open(t, filepath.Join(t.TempDir(), "new", "run"), store.Options{}) },
		"server": func() store.Store {
			s, _ := newServer()
			s.PageKeys = 3
			return open(t, serve(t, s), store.Options{})
		},
		"faults": func() store.Store {
			s, proxy := newServer()
			s.PageKeys = 3
			return openSpoiled(t, proxy, "run")
		},
	}
	for named := range strings.FieldsSeq(os.Getenv("STORES")) {
		name, location, _ := strings.Cut(named, "=")
		_, endpoint, _ := strings.Cut(location, "?endpoint_override=")
		target, err := url.Parse(endpoint)
		if err != nil {
			t.Fatal(err)
		}
		stores[name] = func() store.Store {
			return open(t, "s3://bucket/"+rand.Text()+"?endpoint_override="+endpoint, store.Options{})
		}
		stores[name+"-faults"] = func() store.Store {
			return openSpoiled(t, &storetest.Proxy{Server: storetest.Forward(target)}, rand.Text())
		}
	}
	tests := map[string]func(*testing.T, store.Store){
		"PutNew": testPutNew, "Writers": testWriters, "Put": testPut, "PutFile": testPutFile, "Read": testRead,
		"List": testList, "Names": testNames, "Delete": testDelete, "Sub": testSub, "Probe": testProbe, "Now": testNow,
	}
	for name, open := range stores {
		for test, run := range tests {
			if strings.HasSuffix(name, "faults") && test == "Probe" {
				continue // 1,300 requests
			}
			s := open()
			t.Run(name+"/"+test, func(t *testing.T) {
				t.Parallel()
				run(t, s)
			})
		}
	}
}

// openSpoiled opens a prefix of the bucket behind a proxy that then spoils every fourth request.
func openSpoiled(t *testing.T, proxy *storetest.Proxy, prefix string) store.Store {
	t.Helper()
	location := strings.Replace(serve(t, proxy), "/run?", "/"+prefix+"?", 1)
	s := open(t, location, store.Options{Timeout: time.Second})
	proxy.Plan(storetest.Random(1, 0.25, faults()...))
	return s
}

func testSub(t *testing.T, s store.Store) {
	t.Helper()
	sub := s.Sub("a").Sub("b/c")
	for _, err := range []error{
		sub.Put("x/1", []byte("sub")), s.Put("a/b/c0", []byte("other")), s.Put("x/1", []byte("root")), s.PutNew("a/b/c/x/2", []byte("2")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	wantBody(t, sub, "x/1", "sub")
	wantBody(t, s, "a/b/c/x/1", "sub")
	wantBody(t, sub, "x/2", "2")
	if err := sub.PutNew("x/2", []byte("3")); !errors.Is(err, fs.ErrExist) {
		t.Errorf("PutNew of a taken name = %v", err)
	}
	if got, want := list(t, sub.List("", "")), []string{"x/1", "x/2"}; !slices.Equal(got, want) {
		t.Errorf("the list is %q, want %q", got, want)
	}
	if got := list(t, sub.List("x/", "x/1")); !slices.Equal(got, []string{"x/2"}) {
		t.Errorf("the list after x/1 is %q", got)
	}
	if err := sub.Delete("x/1"); err != nil {
		t.Error(err)
	}
	if _, err := sub.Get("x/1"); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), sub.String()+"/x/1") {
		t.Errorf("Get of a deleted object = %v", err)
	}
	wantBody(t, s, "x/1", "root")
	if got, want := sub.String(), s.String()+"/a/b/c"; got != want {
		t.Errorf("String() = %q, want %q", got, want)
	}
}

func testPutNew(t *testing.T, s store.Store) {
	t.Helper()
	for i, tt := range []struct {
		name, body string
		want       error
	}{
		{"_commits/1.json", "one", nil},
		{"_commits/1.json", "one", nil}, // the answer to the first try can be lost
		{"_commits/1.json", "two", fs.ErrExist},
		{"_commits/1.json", "", fs.ErrExist},
		{"empty", "", nil},
		{"empty", "", nil},
		{"empty", "x", fs.ErrExist},
	} {
		if err := s.PutNew(tt.name, []byte(tt.body)); !errors.Is(err, tt.want) {
			t.Errorf("%d: PutNew(%q, %q) = %v, want %v", i, tt.name, tt.body, err, tt.want)
		}
	}
	wantBody(t, s, "_commits/1.json", "one")
	wantBody(t, s, "empty", "")
}

// testWriters tests that exactly one of several writers gets each name, and that it knows this.
func testWriters(t *testing.T, s store.Store) {
	t.Helper()
	const writers, names = 4, 10
	won := make([][]string, writers)
	var wg sync.WaitGroup
	for i := range writers {
		wg.Go(func() {
			for n := range names {
				name := fmt.Sprintf("log/%03d", n)
				err := s.PutNew(name, fmt.Appendf(nil, "writer %d", i))
				if err == nil {
					won[i] = append(won[i], name)
				} else if !errors.Is(err, fs.ErrExist) {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if total := len(slices.Concat(won...)); total != names {
		t.Errorf("%d names have %d winners: %q", names, total, won)
	}
	for i, names := range won {
		for _, name := range names {
			wantBody(t, s, name, fmt.Sprintf("writer %d", i))
		}
	}
}

func testPut(t *testing.T, s store.Store) {
	t.Helper()
	for _, body := range []string{"one", "two and more", ""} {
		if err := s.Put("sub/README.md", []byte(body)); err != nil {
			t.Fatal(err)
		}
		wantBody(t, s, "sub/README.md", body)
	}
}

func testPutFile(t *testing.T, s store.Store) {
	t.Helper()
	body := bytes.Repeat([]byte("0123456789abcdef"), 100_000)
	dir := t.TempDir()
	if strings.HasPrefix(s.String(), "/") { // a rename needs the same file system
		dir = s.String()
		if err := os.MkdirAll(dir, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(dir, ".tmp-part")
	if err := os.WriteFile(file, body, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := s.PutFile("data/part-1", file, sha256.Sum256(body)); err != nil {
		t.Fatal(err)
	}
	wantBody(t, s, "data/part-1", string(body))
	if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the local file: %v, want that it does not exist", err)
	}
	if err := s.PutFile("data/part-2", file, sha256.Sum256(body)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("PutFile of a missing file: %v", err)
	}
}

func testRead(t *testing.T, s store.Store) {
	t.Helper()
	if err := s.PutNew("a", []byte("0123456789")); err != nil {
		t.Fatal(err)
	}
	o, err := s.Open("a")
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	if o.Size() != 10 {
		t.Errorf("Size() = %d", o.Size())
	}
	for _, tt := range []struct {
		off, n int64
		want   string
		err    error
	}{
		{0, 10, "0123456789", nil},
		{0, 3, "012", nil},
		{7, 3, "789", nil},
		{7, 4, "789", io.EOF},
		{10, 1, "", io.EOF},
		{11, 1, "", io.EOF},
		{0, 0, "", nil},
	} {
		p := make([]byte, tt.n)
		n, err := o.ReadAt(p, tt.off)
		if string(p[:n]) != tt.want || err != tt.err && (n < len(p) || err != nil) {
			t.Errorf("ReadAt(%d bytes, %d) = %q, %v, want %q, %v", tt.n, tt.off, p[:n], err, tt.want, tt.err)
		}
	}
	if _, err := o.ReadAt(make([]byte, 1), -1); err == nil {
		t.Error("ReadAt(-1) succeeds")
	}
	for _, name := range []string{"b", "a/b", "sub/a"} {
		if _, err := s.Open(name); err == nil {
			t.Errorf("Open(%q) succeeds", name)
		}
	}
	if _, err := s.Get("b"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Get of a missing object: %v", err)
	}
	if _, err := s.Open("b"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Open of a missing object: %v", err)
	}
}

func testList(t *testing.T, s store.Store) {
	t.Helper()
	if got := list(t, s.List("", "")); len(got) > 0 {
		t.Errorf("an empty store lists %q", got)
	}
	names := []string{"a b", "a!", "a+b", "a-b", "a/b", "a/b-c", "a/b%2F", "a/c/d", "a/ü", "ab", "b/1", "b/2", "c"}
	for _, name := range names {
		if err := s.PutNew(name, []byte(name)); err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(names)
	for _, prefix := range []string{"", "a", "a/", "a/b", "b/", "c", "d", "a/c/d/"} {
		for _, after := range []string{"", "a b", "a/", "a/b", "b/1", "zz"} {
			want := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return !strings.HasPrefix(n, prefix) || n <= after })
			if got := list(t, s.List(prefix, after)); !slices.Equal(got, want) {
				t.Errorf("List(%q, %q) = %q, want %q", prefix, after, got, want)
			}
		}
	}
	for info, err := range s.List("a/b", "") {
		if age := time.Since(info.Time); err != nil || info.Size != int64(len(info.Name)) || age < -time.Minute || age > time.Minute {
			t.Errorf("List yields %+v, %v", info, err)
		}
		break
	}
}

func testNames(t *testing.T, s store.Store) {
	t.Helper()
	for _, name := range []string{"", ".", "/a", "a/", "a//b", "../a", "a/../b", `a\b`, "a\nb", "a\x00", "\xff"} {
		_, open := s.Open(name)
		_, get := s.Get(name)
		errs := []error{s.PutNew(name, nil), s.Put(name, nil), s.PutFile(name, "x", [32]byte{}), s.Delete(name), open, get}
		for i, err := range errs {
			if _, ok := errors.AsType[*store.Error](err); !ok {
				t.Errorf("%d: name %q: %v, want an *Error", i, name, err)
			}
		}
	}
}

func testProbe(t *testing.T, s store.Store) {
	t.Helper()
	if err := store.Probe(s); err != nil {
		t.Error(err)
	}
	if left := list(t, s.List("", "")); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

// testNow compares Now with the time of an object in a list.
func testNow(t *testing.T, s store.Store) {
	t.Helper()
	if err := s.Put("a", nil); err != nil {
		t.Fatal(err)
	}
	now, err := s.Now()
	if err != nil {
		t.Fatal(err)
	}
	for i, err := range s.List("", "") {
		if d := now.Sub(i.Time); err != nil || i.Name != "a" || d < -5*time.Second || d > time.Minute {
			t.Errorf("Now() is %v after the put of %q: %v", d, i.Name, err)
		}
	}
}

func testDelete(t *testing.T, s store.Store) {
	t.Helper()
	if err := s.PutNew("sub/a", nil); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.Delete("sub/a"); err != nil {
			t.Error(err)
		}
	}
	if _, err := s.Get("sub/a"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Get after Delete: %v", err)
	}
}

// mounted is a file system with a second file system in a folder.
type mounted struct {
	store.FS
	at string
}

func (m mounted) Rename(from, to string) error {
	if strings.HasPrefix(from, m.at) != strings.HasPrefix(to, m.at) {
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: syscall.EXDEV}
	}
	return m.FS.Rename(from, to)
}

// TestPutFileFromOtherDisk tests PutFile if the file is on another file system than the folder.
func TestPutFileFromOtherDisk(t *testing.T) {
	t.Parallel()
	dir, spool := t.TempDir(), t.TempDir()
	s := store.Folder(mounted{store.OS(), spool}, dir)
	file, body := filepath.Join(spool, "file"), bytes.Repeat([]byte("content"), 100_000)
	if err := os.WriteFile(file, body, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := s.PutFile("data/part-1", file, sha256.Sum256(body)); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Get("data/part-1"); err != nil || !bytes.Equal(got, body) {
		t.Errorf("Get: %d bytes, %v", len(got), err)
	}
	for _, left := range []string{file, filepath.Join(dir, "data", ".tmp-*")} {
		if found, _ := filepath.Glob(left); len(found) > 0 {
			t.Errorf("left: %q", found)
		}
	}
}

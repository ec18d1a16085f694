package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/parquet-go/parquet-go"
)

// What encoding/json takes is taken, but for what it would change silently: keys given
// twice, halves of surrogate pairs, what is nested without end, what is not UTF-8.
func checkScan(t *testing.T, text []byte) {
	t.Helper()
	err := scanJSON(text, nil)
	_, strict := errors.AsType[*jsonError](err)
	switch valid := json.Valid(text); {
	case err == nil && !valid:
		t.Errorf("%q is taken, and is not JSON", text)
	case err == nil:
		var v any
		if json.Unmarshal(text, &v) != nil {
			return // a number that no float64 holds
		}
		b, _ := json.Marshal(v)
		if bytes.ContainsRune(b, utf8.RuneError) && !bytes.ContainsRune(text, utf8.RuneError) && !bytes.Contains(bytes.ToLower(text), []byte(`\ufffd`)) {
			t.Errorf("%q is taken, and reads as %s", text, b)
		}
	case valid && !strict && !errors.Is(err, errNotUTF8):
		t.Errorf("%q is JSON: %v", text, err)
	}
}

func FuzzScanJSON(f *testing.F) {
	for _, text := range []string{
		"", " ", "{}", "[]", "[1,]", `{"a":1,}`, `{"a" 1}`, `{a:1}`, "null", "nul", "truefalse", "01", "-", "-0.5e+10", "1.", "1e", "\"\x01\"", `"\x"`,
		`"\ud800"`, `"\ud83d\ude00"`, `"\ude00\ud83d"`, `"\ud83dx"`, `"\u12"`, `{"a":{"b":[1,{"c":null}]},"a":2}`, `{"a":1,"\u0061":2}`, "\"\xff\"", "1 2", "\xef\xbb\xbf{}",
		strings.Repeat("[", maxJSONDepth) + strings.Repeat("]", maxJSONDepth), strings.Repeat("[", maxJSONDepth+1) + strings.Repeat("]", maxJSONDepth+1),
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(checkScan)
}

// Keys are compared as what they read as, in objects of any size.
func TestKeysGivenTwice(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, fewKeys - 1, fewKeys, fewKeys + 1, 40} {
		var keys []string
		for i := range n {
			keys = append(keys, fmt.Sprintf(`"k%d":%d`, i, i))
		}
		object := "{" + strings.Join(keys, ",")
		if err := scanJSON([]byte(object+"}"), nil); err != nil {
			t.Errorf("%d keys: %v", n, err)
		}
		for _, again := range []string{"k0", fmt.Sprintf("k%d", n-1), `\u006b0`} {
			if err := scanJSON([]byte(object+`,"`+again+`":0}`), nil); err == nil {
				t.Errorf("%d keys, then %s again: taken", n, again)
			}
		}
	}
}

// A pipe that nobody writes to is given up, one that is written to slowly is not.
func TestInputDeadline(t *testing.T) {
	t.Parallel()
	silentPipe, slow := filepath.Join(t.TempDir(), "silent"), filepath.Join(t.TempDir(), "slow")
	for _, name := range []string{silentPipe, slow} {
		if err := syscall.Mkfifo(name, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := readInput(silentPipe, 1<<20, 20*time.Millisecond); err == nil || !strings.HasSuffix(err.Error(), "nothing was written to it within 20ms") {
		t.Errorf("nobody opens the pipe: %v", err)
	}
	w, err := os.OpenFile(silentPipe, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = w.Close() }() // of a test
	if _, err := readInput(silentPipe, 1<<20, 20*time.Millisecond); err == nil || !strings.HasSuffix(err.Error(), "nothing was written to it within 20ms") {
		t.Errorf("nobody writes to the pipe: %v", err)
	}
	go func() {
		f, err := os.OpenFile(slow, os.O_WRONLY, 0)
		if err != nil {
			t.Error(err)
			return
		}
		_, err = io.WriteString(f, "agent:\n")
		_, err2 := io.WriteString(f, "  model: m\n")
		if err := errors.Join(err, err2, f.Close()); err != nil {
			t.Error(err)
		}
	}()
	if b, err := readInput(slow, 1<<20, time.Minute); err != nil || string(b) != "agent:\n  model: m\n" {
		t.Errorf("%q, %v", b, err)
	}
	for size, ok := range map[int]bool{9: true, 10: true, 11: false} {
		if _, err := readInput(writeFile(t, "f", make([]byte, size)), 10, time.Second); (err == nil) != ok {
			t.Errorf("%d bytes of at most 10: %v", size, err)
		}
	}
}

// Two columns of one name: which of them counts is the reader's whim.
func TestColumnsOfOneName(t *testing.T) {
	t.Parallel()
	schema := parquet.NewSchema("tasks", twice{parquet.Group{"id": parquet.String(), "prompt": parquet.String()}})
	if err := checkTaskColumns(schema); exitCode(err) != exitUsage || !strings.HasPrefix(err.Error(), "two columns are called prompt") {
		t.Errorf("two columns prompt: %v", err)
	}
}

// twice is a group that has its last field a second time.
type twice struct{ parquet.Group }

func (g twice) Fields() []parquet.Field {
	f := g.Group.Fields()
	return append(f, f[len(f)-1])
}

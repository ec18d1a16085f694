package input

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Reading stops waiting for a pipe without a writer, but not for a slow one.
func TestInputDeadline(t *testing.T) {
	t.Parallel()
	silentPipe, slow := filepath.Join(t.TempDir(), "silent"), filepath.Join(t.TempDir(), "slow")
	for _, name := range []string{silentPipe, slow} {
		if err := syscall.Mkfifo(name, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Read(silentPipe, 1<<20, 20*time.Millisecond); err == nil || !strings.HasSuffix(err.Error(), "no data within 20ms") {
		t.Errorf("a pipe without a writer: %v", err)
	}
	w, err := os.OpenFile(silentPipe, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = w.Close() }() // end of the test
	if _, err := Read(silentPipe, 1<<20, 20*time.Millisecond); err == nil || !strings.HasSuffix(err.Error(), "no data within 20ms") {
		t.Errorf("a pipe without data: %v", err)
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
	if b, err := Read(slow, 1<<20, time.Minute); err != nil || string(b) != "agent:\n  model: m\n" {
		t.Errorf("%q, %v", b, err)
	}
	for size, ok := range map[int]bool{9: true, 10: true, 11: false} {
		path := filepath.Join(t.TempDir(), "f")
		if err := os.WriteFile(path, make([]byte, size), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(path, 10, time.Second); (err == nil) != ok {
			t.Errorf("%d bytes of at most 10: %v", size, err)
		}
	}
}

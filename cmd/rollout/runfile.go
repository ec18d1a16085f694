package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"syscall"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/plainjson"
)

// run.json ends with its checksum: the SHA-256, in lower-case hex, of all bytes of the
// file before the comma. tasks.jsonl is vouched for by run.json.
const (
	runSumBegin = ",\n  \"sha256\": \""
	runSumEnd   = "\"\n}\n"
)

// encodeRun returns the bytes of run.json.
func encodeRun(info runInfo) ([]byte, error) {
	info.Version, info.SHA256 = runVersion, ""
	var out bytes.Buffer
	enc := plainjson.NewEncoder(&out)
	enc.SetIndent("", "  ")
	if err := enc.Encode(info); err != nil {
		return nil, err
	}
	body := bytes.TrimSuffix(out.Bytes(), []byte("\n}\n"))
	sum := sha256.Sum256(body)
	return fmt.Appendf(body, "%s%x%s", runSumBegin, sum, runSumEnd), nil
}

// checkRunSum compares run.json with the checksum at its end. summed reports whether there
// is one.
func checkRunSum(body []byte) (summed bool, err error) {
	at := len(body) - len(runSumBegin) - 2*sha256.Size - len(runSumEnd)
	if at < 0 || !bytes.HasPrefix(body[at:], []byte(runSumBegin)) || !bytes.HasSuffix(body, []byte(runSumEnd)) {
		return false, nil
	}
	sum := sha256.Sum256(body[:at])
	if says := body[at+len(runSumBegin) : len(body)-len(runSumEnd)]; hex.EncodeToString(sum[:]) != string(says) {
		return true, errors.New("its checksum is wrong")
	}
	return true, nil
}

// writeRun makes info the run's run.json.
func (f *runFolder) writeRun(info runInfo) error {
	body, err := encodeRun(info)
	if err != nil {
		return err
	}
	return writeDurably(f.dir, runFile, f.mode, func(w io.Writer) error { _, err := w.Write(body); return err })
}

// checkSnapshot compares the tasks of the run in dir with what run.json says of them, and
// returns their digest.
func checkSnapshot(dir string, info *runInfo) (digest string, err error) {
	digest, err = digestFile(filepath.Join(dir, tasksFile))
	switch {
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EIO):
		return "", exit.With(exit.Storage, fmt.Errorf("%s: the run's tasks: %w", dir, err))
	case err != nil:
		err = fmt.Errorf("%s: the run's tasks: %w", dir, err)
	case digest == info.Tasks.GrewFrom: // the process that let it grow died before the file was there
	case digest != info.Tasks.SHA256:
		err = fmt.Errorf("%s: %s is not the file that the run wrote: its digest differs", dir, tasksFile)
	}
	if err != nil {
		return "", exit.Hint(exit.With(exit.Verify, err), "put the run's own "+tasksFile+" back; other tasks are given with --tasks")
	}
	return digest, nil
}

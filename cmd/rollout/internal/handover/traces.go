package handover

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/config"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/decode"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/rowjson"
	"github.com/rollout-rl/rollout/sink"
)

// A tracesWriter writes one file per conversation: a line with the session, and one line per message. The Hub
// renders such files in its trace viewer. A folder of the Hub can have at most 10,000 files, so the files are
// in 256 folders.
type tracesWriter struct {
	flat
	dir     string
	mode    fs.FileMode
	options Options
	left    *Left
	buf     []byte
}

// NewTraces returns a Writer of the format hf-traces. It writes files with the given mode to the folder dir.
func NewTraces(dir string, mode fs.FileMode, o Options, left *Left) Writer {
	return &tracesWriter{dir: dir, mode: mode, options: o, left: left}
}

// Write implements Writer.
func (w *tracesWriter) Write(r *sink.StoredRow) (bool, error) {
	c, ok := conversationOf(r, w.options.Decoder, w.left)
	if !ok {
		return false, nil
	}
	return true, w.file(&c)
}

// safe matches keys that are safe as the name of a file. The keys of an import can be any text.
var safe = regexp.MustCompile(`^[0-9A-Za-z_][0-9A-Za-z_.-]{0,199}$`)

// path returns the path of the file of a conversation in the folder.
func (c *conversation) path() string {
	sum := sha256.Sum256([]byte(c.row.SampleKey))
	file := c.row.SampleKey
	if !safe.MatchString(file) {
		file = hex.EncodeToString(sum[:])
	}
	if c.row.SegmentCount > 1 && !c.stored {
		file += fmt.Sprintf(".%d", c.row.SegmentIndex)
	}
	return filepath.Join(hex.EncodeToString(sum[:1]), file+".jsonl")
}

func (w *tracesWriter) file(c *conversation) (err error) {
	path := filepath.Join(w.dir, c.path())
	if err := os.MkdirAll(filepath.Dir(path), config.FolderMode(w.mode)); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, w.mode)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	out := bufio.NewWriterSize(f, 64<<10)
	id := c.row.RolloutID
	if !c.stored {
		id = name(c.row)
	}
	b := rowjson.AppendText(append(w.buf[:0], `{"type":"session","harness":"rollout","id":`...), id)
	b = rowjson.AppendText(append(b, `,"name":`...), c.row.TaskID)
	b = append(appendIdentity(append(b, ','), c), "}\n"...)
	for i := range c.messages {
		b = append(appendTraced(append(b, `{"type":"message","message":`...), &c.messages[i], c.row.Model), "}\n"...)
		if _, err := out.Write(b); err != nil {
			return err
		}
		b = b[:0]
	}
	w.buf = b
	return out.Flush()
}

func appendTraced(b []byte, m *decode.Message, model string) []byte {
	b = append(append(append(b, `{"role":"`...), m.Role...), '"')
	b = rowjson.AppendText(append(b, `,"content":`...), m.Content)
	if m.Reasoning != "" {
		b = rowjson.AppendText(append(b, `,"reasoningContent":`...), m.Reasoning)
	}
	if m.CallID != "" {
		b = rowjson.AppendText(append(b, `,"toolCallId":`...), m.CallID)
	}
	b = decode.AppendCalls(b, `,"toolCalls":[`, "", m.Calls)
	if m.Role == decode.Assistant && model != "" {
		b = rowjson.AppendText(append(b, `,"model":`...), model)
	}
	return append(b, '}')
}

package harness

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// An Output states where the final answer of an agent is. The zero value is the standard output.
type Output struct {
	kind outputKind
	file string   // relative to the work folder; may begin with {workdir} or {home}
	path []string // keys and indexes in JSON
	text string   // as written
}

type outputKind uint8

const (
	outputStdout  outputKind = iota
	outputFile               // a file
	outputJSON               // a value in the JSON of the standard output or a file
	outputSession            // the last answer of the main conversation
)

// ParseOutput parses a setting:
//
//	stdout                the standard output, without space at both ends
//	file:PATH             a file
//	json:.PATH            a value in the JSON that the command prints. If it prints several JSON
//	                      values, such as one per line, the last value that contains the path counts.
//	json:FILE:.PATH       a value in a JSON file
//	session               the text of the last answer in the main conversation
//
// The path of a file is relative to the work folder. It can begin with {workdir} or {home}. A path
// in JSON consists of keys and indexes, such as .result, .messages[0].text or .messages.-1.text. A
// negative index counts from the end. A value that is not a string is formatted as JSON.
func ParseOutput(text string) (Output, error) {
	o := Output{text: text}
	kind, rest, _ := strings.Cut(text, ":")
	switch {
	case text == "stdout" || text == "":
		return o, nil
	case text == "session":
		o.kind = outputSession
		return o, nil
	case kind == "file" && rest != "":
		o.kind, o.file = outputFile, rest
	case kind == "json" && strings.HasPrefix(rest, "."):
		o.kind, o.path = outputJSON, strings.Split(strings.NewReplacer("[", ".", "]", "").Replace(rest[1:]), ".")
	case kind == "json" && strings.LastIndex(rest, ":.") > 0:
		at := strings.LastIndex(rest, ":.")
		inner, err := ParseOutput("json:" + rest[at+1:])
		inner.file, inner.text = rest[:at], text
		o = inner
		if err != nil {
			return o, err
		}
	default:
		return o, fieldErrorf("output", "%q: want stdout, session, file:PATH, json:.KEY or json:FILE:.KEY", text)
	}
	if slices.Contains(o.path, "") {
		return o, fieldErrorf("output", "%q: the path contains an empty key", text)
	}
	if o.file != "" && (filepath.IsAbs(o.file) || !filepath.IsLocal(o.relative())) {
		return o, fieldErrorf("output", "%q: the file must be inside the work folder or HOME", text)
	}
	return o, nil
}

func (o Output) String() string {
	if o.text == "" {
		return "stdout"
	}
	return o.text
}

// relative returns the path of the file relative to the folder of the attempt.
func (o Output) relative() string {
	if rest, ok := strings.CutPrefix(o.file, "{home}/"); ok {
		return filepath.Join(homeFolder, rest)
	}
	return filepath.Join(workFolder, strings.TrimPrefix(o.file, "{workdir}/"))
}

// maxOutput limits the size of the output that is kept, in bytes.
const maxOutput = 1 << 20

// read returns the final answer, with secrets. The error states why the answer is missing.
func (o Output) read(folder string, stdout *tail) (string, error) {
	text := stdout.bytes()
	if o.file != "" {
		var err error
		if text, err = readOutput(folder, o.relative(), stdout.secrets); err != nil {
			return "", err
		}
	}
	if o.kind != outputJSON {
		return strings.TrimSpace(strings.ToValidUTF8(string(text), "\uFFFD")), nil
	}
	if answer, ok := lastValue(text, o.path); ok {
		return strings.TrimSpace(answer), nil
	}
	return "", fmt.Errorf("the output has no JSON value at .%s", strings.Join(o.path, "."))
}

// readOutput reads the end of a file in the folder of the attempt. An agent can make the file a link
// to a file of the user, or a pipe that blocks, so both are errors.
func readOutput(folder, path string, secrets *redactor) ([]byte, error) {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	f, err := root.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("the output file: %w", err)
	}
	defer func() { _ = f.Close() }() // read only
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, errors.New("the output file is not a regular file")
	}
	if size := info.Size(); size > maxOutput { // one byte more, so that the tail knows that it is not all
		if _, err := f.Seek(size-maxOutput-1, io.SeekStart); err != nil {
			return nil, err
		}
	}
	end := &tail{max: maxOutput, secrets: secrets}
	_, err = io.Copy(end, io.LimitReader(f, maxOutput+1))
	return end.bytes(), err
}

// lastValue returns the value at the path in the last JSON value of the text that has the path. The
// text is one JSON value, or contains JSON values in lines of their own.
func lastValue(text []byte, path []string) (string, bool) {
	if value, ok := valueAt(text, path); ok {
		return value, true
	}
	lines := bytes.Split(text, []byte("\n"))
	for _, line := range slices.Backward(lines) {
		if value, ok := valueAt(line, path); ok {
			return value, true
		}
	}
	return "", false
}

func valueAt(text []byte, path []string) (string, bool) {
	var v any
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if d.Decode(&v) != nil || d.More() {
		return "", false
	}
	for _, key := range path {
		switch at := v.(type) {
		case map[string]any:
			next, ok := at[key]
			if !ok {
				return "", false
			}
			v = next
		case []any:
			i, err := strconv.Atoi(key)
			if i < 0 {
				i += len(at)
			}
			if err != nil || i < 0 || i >= len(at) {
				return "", false
			}
			v = at[i]
		default:
			return "", false
		}
	}
	switch v := v.(type) {
	case nil:
		return "", true
	case string:
		return v, true
	}
	b, err := json.Marshal(v)
	return string(b), err == nil
}

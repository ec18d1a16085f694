package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// agentProgram is the name of a command that behaves like a small agent harness:
//
//	agentprogram BASE_URL KEY PROMPT
//
// The prompt has a marker of the scripted engine. The marker states what the model does and what kind
// of harness this is: one with two subagents at a time and a title (subagent), one that reads
// streams and repeats a failed request (cut, err or drop), or one that calls tools. These words of
// the prompt make it hostile:
//
//	flood=N     make N further calls, 16 at a time, and read half of the answers
//	fork=N      start about N processes that leave the program, some of which fork all the time
//	survive     start a process that has no parent, no terminal, and no environment
//	secret      print the environment, and let the model read the key
//	hang        never end
//
// With AGENT_KEYS, the program writes its key to a new file in that folder.
const agentProgram = "agentprogram"

// A message is a message of a conversation.
type message struct {
	Role       string     `json:"role"`
	Content    *string    `json:"content"`
	ToolCalls  []toolCall `json:"tool_calls,omitempty"`
	ToolCallID string     `json:"tool_call_id,omitempty"`
}

type toolCall struct {
	Index    int    `json:"index"`
	ID       string `json:"id"`
	Type     string `json:"type"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

func newMessage(role, text string) message { return message{Role: role, Content: &text} }

// toolOf returns a tool with one argument.
func toolOf(name, argument string) json.RawMessage {
	return fmt.Appendf(nil, `{"type":"function","function":{"name":%q,"description":"","parameters":{"type":"object","properties":{%q:{"type":"string"}},"required":[%[2]q]}}}`, name, argument)
}

var (
	shellTool = toolOf("bash", "command")
	agentTool = toolOf("task", "prompt")
)

// A talker makes the calls of a session.
type talker struct {
	url, key string
	client   *http.Client
	stream   bool
	retries  int             // of a request that fails
	pause    time.Duration   // before a retry
	answered func(m message) // called with every answer that was received whole
}

var errSealed = errors.New("the session is sealed")

// ask makes a call until it succeeds.
func (k *talker) ask(messages []message, tools ...json.RawMessage) (message, error) {
	for try := 0; ; try++ {
		m, err := k.once(messages, tools)
		if err == nil || try == k.retries || errors.Is(err, errSealed) {
			return m, err
		}
		time.Sleep(k.pause)
	}
}

func (k *talker) once(messages []message, tools []json.RawMessage) (message, error) {
	body := map[string]any{"model": "policy", "messages": messages, "stream": k.stream}
	if tools != nil {
		body["tools"] = tools
	}
	text, err := json.Marshal(body)
	if err != nil {
		return message{}, err
	}
	req, err := http.NewRequest(http.MethodPost, k.url+"/v1/chat/completions", bytes.NewReader(text))
	if err != nil {
		return message{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+k.key)
	resp, err := k.client.Do(req)
	if err != nil {
		return message{}, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(resp.Body)
		err := fmt.Errorf("status %d: %s", resp.StatusCode, bytes.TrimSpace(text))
		if resp.StatusCode == http.StatusGone {
			err = fmt.Errorf("%w: %w", errSealed, err)
		}
		return message{}, err
	}
	var got completion
	if k.stream {
		got, err = readStream(resp.Body)
	} else {
		err = json.NewDecoder(resp.Body).Decode(&got)
	}
	if err == nil && len(got.Choices) != 1 {
		err = errors.New("no choice")
	}
	if err != nil {
		return message{}, err
	}
	m := got.Choices[0].Message
	m.Role = "assistant"
	if k.answered != nil {
		k.answered(m)
	}
	return m, nil
}

type completion struct {
	Choices []struct{ Message, Delta message }
}

// readStream returns the answer of a whole stream.
func readStream(r io.Reader) (all completion, err error) {
	var m message
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		if data == "[DONE]" {
			all.Choices = []struct{ Message, Delta message }{{Message: m}}
			return all, nil
		}
		var c completion
		if err := json.Unmarshal([]byte(data), &c); err != nil {
			return c, err
		}
		for _, choice := range c.Choices {
			m.add(choice.Delta)
		}
	}
	return all, errors.Join(errors.New("the stream was cut off"), lines.Err())
}

// add adds a piece of a stream.
func (m *message) add(d message) {
	if d.Content != nil {
		text := *d.Content
		if m.Content != nil {
			text = *m.Content + text
		}
		m.Content = &text
	}
	for _, c := range d.ToolCalls {
		for len(m.ToolCalls) <= c.Index {
			m.ToolCalls = append(m.ToolCalls, toolCall{Index: len(m.ToolCalls), Type: "function"})
		}
		to := &m.ToolCalls[c.Index]
		to.ID, to.Function.Name = to.ID+c.ID, to.Function.Name+c.Function.Name
		to.Function.Arguments += c.Function.Arguments
	}
}

// converse runs a conversation until an answer that calls no tool, and returns its text.
func (k *talker) converse(prompt string, tools ...json.RawMessage) (string, error) {
	messages := []message{newMessage("system", "You are a small agent with "+strconv.Itoa(len(tools))+" tools."), newMessage("user", prompt)}
	for range 20 {
		m, err := k.ask(messages, tools...)
		if err != nil {
			return "", err
		}
		messages = append(messages, m)
		if len(m.ToolCalls) == 0 {
			return contentOf(m), nil
		}
		for _, c := range m.ToolCalls {
			result := "done"
			if c.Function.Name == "task" {
				if result, err = k.delegate(c.Function.Arguments); err != nil {
					return "", err
				}
			}
			r := newMessage("tool", result)
			r.ToolCallID = c.ID
			messages = append(messages, r)
		}
	}
	return "", errors.New("the model calls tools for ever")
}

func contentOf(m message) string {
	if m.Content == nil {
		return ""
	}
	return *m.Content
}

// identity returns the text and the calls of an answer.
func (m *message) identity() string {
	all := contentOf(*m)
	for _, c := range m.ToolCalls {
		all += "\n" + c.ID + " " + c.Function.Name + " " + c.Function.Arguments
	}
	return all
}

// delegate runs two subagents at a time. The second gets another seed.
func (k *talker) delegate(arguments string) (string, error) {
	var task struct{ Prompt string }
	if err := json.Unmarshal([]byte(arguments), &task); err != nil {
		return "", err
	}
	var answers [2]string
	var errs [2]error
	var both sync.WaitGroup
	for i, prompt := range []string{task.Prompt, subSeed.ReplaceAllString(task.Prompt, "${1}t")} {
		both.Go(func() { answers[i], errs[i] = k.converse(prompt, shellTool) })
	}
	both.Wait()
	return strings.Join(answers[:], " "), errors.Join(errs[:]...)
}

var subSeed = regexp.MustCompile(`(seed=\d+)s`)

// run does what the prompt says, and returns the final answer.
func (k *talker) run(prompt string) (string, error) {
	switch {
	case strings.Contains(prompt, " subagent"):
		var title sync.WaitGroup
		title.Go(func() { _, _ = k.ask([]message{newMessage("system", "Write a title."), newMessage("user", prompt)}) })
		defer title.Wait()
		return k.converse(prompt, shellTool, agentTool)
	case strings.Contains(prompt, "cut="), strings.Contains(prompt, "err="), strings.Contains(prompt, "drop="):
		k.stream, k.retries = true, max(5, k.retries)
		return k.converse(prompt, shellTool, toolOf("read", "path"))
	}
	return k.converse(prompt, shellTool)
}

// agentMain is the program.
func agentMain() {
	k := &talker{url: os.Args[1], key: os.Args[2], client: &http.Client{Timeout: time.Minute}, pause: 20 * time.Millisecond}
	prompt := os.Args[3]
	if dir := os.Getenv("AGENT_KEYS"); dir != "" {
		f, err := os.CreateTemp(dir, "key-")
		if err == nil {
			_, err = f.WriteString(k.key)
		}
		if err != nil {
			panic(err)
		}
	}
	answer, err := k.hostile(prompt)
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "agent:", err)
		os.Exit(1) //nolint:forbidigo // as below
	}
	_, _ = fmt.Println(answer) //nolint:forbidigo // this is a program of its own
}

// hostile is run for a hostile prompt.
func (k *talker) hostile(prompt string) (string, error) {
	words := map[string]string{}
	for w := range strings.FieldsSeq(prompt) {
		name, value, _ := strings.Cut(w, "=")
		words[name] = value
	}
	has := func(name string) bool { _, ok := words[name]; return ok }
	if has("secret") {
		prompt += " " + k.key + " " + os.Getenv("HARNESS_API_KEY")
		k.answered = func(message) { // in the middle, so that nothing is the last line only
			for _, v := range slices.Concat(os.Environ(), os.Args) {
				_, _ = fmt.Println(v) //nolint:forbidigo // this is a program of its own
				_, _ = fmt.Fprintln(os.Stderr, v)
			}
			_ = os.WriteFile("key", []byte(k.key), 0o600)
		}
	}
	answer, err := k.run(prompt)
	if n, _ := strconv.Atoi(words["flood"]); n > 0 && err == nil {
		k.flood(n)
	}
	if n, _ := strconv.Atoi(words["fork"]); n > 0 {
		forks(n)
	}
	if has("survive") {
		// A process without a parent, without this session, and without an environment.
		err = errors.Join(err, exec.Command("sh", "-c", `(setsid env -i PATH="$PATH" sh -c 'echo $$ >pid; exec sleep 3600' >/dev/null 2>&1 &)
			while ! [ -s pid ]; do sleep 0.01; done; cp pid "$AGENT_KEYS"/survivor`).Run())
	}
	if has("secret") {
		answer += " " + k.key
	}
	if has("hang") {
		signal.Ignore(syscall.SIGTERM, syscall.SIGINT)
		time.Sleep(time.Hour)
	}
	return answer, err
}

// flood makes n calls, 16 at a time. Of every second answer only the head is read.
func (k *talker) flood(n int) {
	var all sync.WaitGroup
	turns := make(chan int)
	for range 16 {
		all.Go(func() {
			for i := range turns {
				body := fmt.Sprintf(`{"model":"policy","stream":%t,"messages":[{"role":"user","content":"flood %d %s"}]}`, i%4 == 0, i, strings.Repeat("x", i%1000))
				if i%10 == 9 {
					body = body[:len(body)/2] // not JSON
				}
				resp, err := k.client.Post(k.url+"/v1/chat/completions", "application/json", strings.NewReader(body))
				if err != nil {
					continue
				}
				if i%2 == 0 {
					_, _ = io.Copy(io.Discard, resp.Body)
				}
				_ = resp.Body.Close()
			}
		})
	}
	for i := range n {
		turns <- i
	}
	close(turns)
	all.Wait()
}

// forks starts about n processes that sleep in sessions of their own, and four that fork all the
// time, each of them once.
func forks(n int) {
	script := `
		i=0; while [ $i -lt ` + strconv.Itoa(n) + ` ]; do (setsid sleep 3600 >/dev/null 2>&1 &); i=$((i+1)); done
		cat >hop <<'END'
sleep 0.02; (setsid sh ./hop >/dev/null 2>&1 &)
END
		for i in 1 2 3 4; do (setsid sh ./hop >/dev/null 2>&1 &); done; sleep 0.1`
	_ = exec.Command("sh", "-c", "ulimit -u 4096 2>/dev/null; "+script).Run()
}

// processesIn returns the processes that have the text in their environment or run in a folder
// below it, as their numbers and command lines. It works on Linux only.
func processesIn(folder string) (all []string) {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		environ, _ := os.ReadFile(dir + "/environ") // empty for a zombie
		cwd, _ := os.Readlink(dir + "/cwd")
		if !bytes.Contains(environ, []byte(folder)) && !strings.HasPrefix(cwd, folder) {
			continue
		}
		line, _ := os.ReadFile(dir + "/cmdline")
		if pid := filepath.Base(dir); len(line) > 0 && pid != strconv.Itoa(os.Getpid()) {
			all = append(all, pid+" "+strings.ReplaceAll(strings.TrimRight(string(line), "\x00"), "\x00", " "))
		}
	}
	return all
}

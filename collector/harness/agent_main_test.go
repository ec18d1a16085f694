package harness_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// runAgent is an agent program. It does what the words of its prompt say, in this order:
//
//	home=NAME     fails unless HOME is empty, and writes a file with this name into it
//	calls=N       makes N calls of a growing conversation
//	foreign=1     uses another prompt
//	write=PATH    writes its answer to a file
//	spoil=1       makes folders that cannot be listed
//	link=PATH     makes its answer a link to a file
//	fifo=PATH     makes a pipe in the place of a file
//	env=1         prints its environment, and the calls contain the key and other secrets
//	flood=N       writes N MiB before the answer
//	quiet=1       prints no answer
//	say=TEXT      prints this text as the answer
//	json=1        prints events, one per line, in ASCII
//	child=PATH    starts a process in a session of its own, and writes its number to a file
//	sleep=TIME    sleeps, and ignores SIGTERM
//	exit=N        exits with this code; signal=N ends itself by a signal
//
// The words model, status, overflow, finish, hang, empty, broken, noids and leak are for the engine.
func runAgent(prompt string) int {
	do := words(prompt)
	home := os.Getenv("HOME")
	if name := do["home"]; name != "" {
		if list, err := os.ReadDir(home); err != nil || len(list) > 0 {
			return 9
		}
		_ = os.WriteFile(filepath.Join(home, name), nil, 0o600)
	}
	said := prompt
	if do["foreign"] != "" {
		said = "calls=" + do["calls"] + " Write a title."
	}
	if do["env"] != "" {
		said += " leak=" + os.Getenv("OPENAI_API_KEY") + "," + os.Getenv("OTHER_API_KEY") + "," + os.Getenv("REFERRED")
	}
	answer := converse(said, do["calls"])
	for _, name := range []string{"write", "link", "fifo"} {
		if path := do[name]; path != "" {
			_ = os.MkdirAll(filepath.Dir(path), 0o700)
			switch name {
			case "write":
				_ = os.WriteFile(path, []byte("written "+answer+"\n"), 0o600)
			case "link":
				_ = os.Symlink("/etc/passwd", path)
			case "fifo":
				_ = syscall.Mkfifo(path, 0o600)
			}
		}
	}
	if do["spoil"] != "" {
		_ = os.MkdirAll("a/b/c", 0o700)
		_ = os.WriteFile("a/b/c/f", []byte("x"), 0o400)
		for _, path := range []string{"a/b/c", "a/b", "a"} {
			_ = os.Chmod(path, 0)
		}
	}
	if do["env"] != "" {
		for _, v := range os.Environ() {
			_, _ = fmt.Println(v) //nolint:forbidigo // this is a program of its own
			_, _ = fmt.Fprintln(os.Stderr, v)
		}
	}
	if n, _ := strconv.Atoi(do["flood"]); n > 0 {
		line := bytes.Repeat([]byte("flood "+os.Getenv("OPENAI_API_KEY")+"\n"), 1<<20/40)
		for range n {
			_, _ = os.Stdout.Write(line)
			_, _ = os.Stderr.Write(line)
		}
	}
	switch {
	case do["json"] != "":
		_, _ = fmt.Printf("Starting.\n{\"type\":\"start\"}\n{\"type\":\"end\",\"result\":{\"texts\":[\"no\",%+q]}}\n{\"type\":\"usage\"}\n", answer) //nolint:forbidigo // as above
	case do["say"] != "":
		_, _ = fmt.Println(do["say"]) //nolint:forbidigo // as above
	case do["quiet"] == "":
		_, _ = fmt.Println(answer) //nolint:forbidigo // as above
	}
	if path := do["child"]; path != "" {
		child := exec.Command("sh", "-c", `(setsid sh -c 'echo $$ >"$0"; exec sleep 3600' "`+path+`" &)`)
		_ = child.Run()
		for {
			if b, _ := os.ReadFile(path); len(b) > 0 {
				break
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
	if name := do["home"]; name != "" {
		if list, err := os.ReadDir(home); err != nil || len(list) != 1 || list[0].Name() != name {
			return 9
		}
	}
	pause(do["sleep"])
	if n, _ := strconv.Atoi(do["signal"]); n > 0 {
		_ = syscall.Kill(os.Getpid(), syscall.Signal(n))
		time.Sleep(time.Minute)
	}
	code, _ := strconv.Atoi(do["exit"])
	return code
}

func pause(text string) {
	if d, err := time.ParseDuration(text); err == nil {
		time.Sleep(d)
	}
}

// converse makes calls and returns the last answer.
func converse(prompt, calls string) (answer string) {
	type message struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	}
	messages := []message{{"user", prompt}}
	n, _ := strconv.Atoi(calls)
	for i := range n {
		if i > 0 {
			messages = append(messages, message{"assistant", answer}, message{"user", "more " + strconv.Itoa(i)})
		}
		body, _ := json.Marshal(map[string]any{"model": "policy", "messages": messages})
		r, err := http.Post(os.Getenv("OPENAI_BASE_URL")+"/chat/completions", "application/json", bytes.NewReader(body))
		if err != nil {
			_, _ = fmt.Fprintln(os.Stderr, "call failed:", err)
			return answer
		}
		text, _ := io.ReadAll(r.Body)
		_ = r.Body.Close()
		var got struct{ Choices []struct{ Message message } }
		if r.StatusCode != http.StatusOK || json.Unmarshal(text, &got) != nil || len(got.Choices) == 0 {
			_, _ = fmt.Fprintln(os.Stderr, "call failed:", r.StatusCode, strings.TrimSpace(string(text)))
			return ""
		}
		answer = got.Choices[0].Message.Content
	}
	return answer
}

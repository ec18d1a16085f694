package harness

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/rollout-rl/rollout/collector/session"
)

// Config configures a Backend. Command, BaseURL and Sessions are required. A [Preset] can provide
// Command, Stdin, Env, Files and Output.
//
// Command, Stdin, and the values of Env and Files can contain placeholders:
//
//	{prompt}     the task's message
//	{base_url}   the base URL of the attempt's session, without /v1 and without a slash at the end
//	{key}        the key of that session, for programs that require an API key
//	{model}      Config.Model
//	{workdir}    the working folder of the command
//	{home}       the value of HOME
//	{context}    Config.Context
//	{max_output} the tokens to leave for one answer: a quarter of the context, at most 32,000
type Config struct {
	// Command contains the program and its arguments. It runs without a shell. A program without a
	// slash is searched for in PATH.
	Command []string
	// Stdin is the standard input of the command. Unlike an argument, it can have any length, and no
	// program mistakes it for an option. Empty means that the standard input is empty.
	Stdin string
	// Env contains environment variables. The command gets these variables and, from this process,
	// only PATH and the other variables that the package comment lists.
	Env map[string]string
	// Secrets contains values that are replaced in all stored texts. Values of Env for which IsSecret
	// returns true, and the keys of sessions, need not be in it. A value of fewer than 8 bytes is
	// ignored, because it can be part of ordinary words.
	Secrets []string
	// Files contains files that are written below HOME before the command starts. The keys are
	// relative paths.
	Files map[string]string
	// Workdir is a folder that is copied for each attempt. The command runs in the copy. Empty means
	// an empty folder. The field workdir in a task's agent settings overrides it.
	Workdir string
	// Output states where the agent's final answer is. The default is the standard output.
	Output Output
	// Timeout limits the time that the command can take. Default 20 min.
	Timeout time.Duration

	// Model is the name that the agent uses for the model. Default "policy".
	Model string
	// Served is the name of the model in the data. Default: Model.
	Served string
	// Context is the context length of the model in tokens, or 0 if it is unknown. A harness needs it
	// to shorten its history in time.
	Context int64
	// BaseURL is the base URL of the proxy that serves Sessions, such as http://127.0.0.1:4000.
	BaseURL string
	// Sessions stores the calls.
	Sessions Sessions
	// Build configures how a session becomes the calls of a sample.
	Build session.Config

	// Dir is the folder that contains the folders of the attempts. Default: os.TempDir().
	Dir string
	// Keep keeps the folders of the attempts, for inspection. Processes and sessions are not kept.
	Keep bool
	// Supervisor is the command of a supervisor: see package subprocess. Nil means none.
	Supervisor []string
	// Check checks whether the engine answers calls. It decides whether failed calls mean an outage, so
	// it must make a call. Default: the engine always counts as up.
	Check func(ctx context.Context) error
}

// The default values of fields of Config.
const (
	DefaultTimeout = 20 * time.Minute
	DefaultModel   = "policy"
)

func (c Config) withDefaults() Config {
	c.Timeout = cmp.Or(c.Timeout, DefaultTimeout)
	c.Model = cmp.Or(c.Model, DefaultModel)
	c.Served = cmp.Or(c.Served, c.Model)
	c.Dir = cmp.Or(c.Dir, os.TempDir())
	c.BaseURL = strings.TrimRight(c.BaseURL, "/")
	if c.Check == nil {
		c.Check = func(context.Context) error { return nil }
	}
	return c
}

// A FieldError is an error in one field of a Config.
type FieldError struct {
	Field string // in lower case, such as workdir
	Err   error
}

func (e *FieldError) Error() string { return "harness." + e.Field + ": " + e.Err.Error() }
func (e *FieldError) Unwrap() error { return e.Err }

// FieldErrors returns every FieldError in an error from this package.
func FieldErrors(err error) (all []*FieldError) {
	switch e := err.(type) { //nolint:errorlint // the whole tree is searched
	case *FieldError:
		return []*FieldError{e}
	case interface{ Unwrap() []error }:
		for _, part := range e.Unwrap() {
			all = append(all, FieldErrors(part)...)
		}
	}
	return all
}

func fieldErrorf(field, format string, args ...any) error {
	return &FieldError{field, fmt.Errorf(format, args...)}
}

// Validate returns all errors in the configuration, joined, each a FieldError. It does not check
// whether the program exists: see [NewBackend].
func (c *Config) Validate() error {
	var errs []error
	add := func(field, format string, args ...any) { errs = append(errs, fieldErrorf(field, format, args...)) }
	switch {
	case len(c.Command) == 0 || c.Command[0] == "":
		add("command", "is empty; set a command or a preset")
	case !c.mentions("{prompt}"):
		add("command", "neither it nor stdin contains {prompt}, so the agent would not receive the task")
	}
	if len(c.Command) > 0 && !c.mentions("{base_url}") {
		add("env", "no value contains {base_url}, so the agent's calls would not reach the model")
	}
	for name := range c.Env {
		if name == "" || strings.ContainsAny(name, "=\x00") {
			add("env", "%q is not a valid name of a variable", name)
		}
	}
	for _, path := range slices.Sorted(maps.Keys(c.Files)) {
		if !filepath.IsLocal(path) {
			add("files", "%q is not a relative path inside HOME", path)
		}
	}
	if c.Timeout < 0 {
		add("timeout", "%v is negative", c.Timeout)
	}
	if c.BaseURL == "" {
		add("base URL", "is empty")
	}
	if c.Sessions == nil {
		add("sessions", "is nil")
	}
	return errors.Join(errs...)
}

// mentions reports whether the command, a variable or a file contains the text.
func (c *Config) mentions(text string) bool {
	has := func(s string) bool { return strings.Contains(s, text) }
	return slices.ContainsFunc(c.Command, has) || has(c.Stdin) ||
		slices.ContainsFunc(slices.Collect(maps.Values(c.Env)), has) ||
		slices.ContainsFunc(slices.Collect(maps.Values(c.Files)), has)
}

// program returns the absolute path of the command's program.
func (c *Config) program() (string, error) {
	name := c.Command[0]
	path, err := exec.LookPath(name)
	if err == nil {
		if path, err = filepath.Abs(path); err != nil {
			return "", fieldErrorf("command", "%w", err)
		}
		return path, nil
	}
	if strings.ContainsRune(name, filepath.Separator) {
		return "", fieldErrorf("command", "%s does not exist or is not executable", name)
	}
	hint := ""
	for _, p := range presets {
		if p.Command[0] == name && name != python {
			hint = ", for example with " + p.Install + ","
		}
	}
	return "", fieldErrorf("command", "%s is not in PATH; install it%s or write its path", name, hint)
}

// checkWorkdir returns an error if path is not a folder that can be copied. An empty path is valid.
func checkWorkdir(path string) error {
	if path == "" {
		return nil
	}
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return fieldErrorf("workdir", "%w", err)
	case !info.IsDir():
		return fieldErrorf("workdir", "%s is not a folder", path)
	}
	return nil
}

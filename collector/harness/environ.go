package harness

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/rollout-rl/rollout/collector/session"
)

// inherited lists the variables that a command inherits from this process. Each of them describes
// the machine or the user, and none contains a secret.
var inherited = []string{"PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "USER", "LOGNAME", "SHELL"}

// values are the values of the placeholders of an attempt.
type values struct {
	prompt, model, folder string
	baseURL               string // of the proxy
	context               int64  // of the model, in tokens
	key                   session.Key
}

func (v *values) home() string { return filepath.Join(v.folder, homeFolder) }
func (v *values) work() string { return filepath.Join(v.folder, workFolder) }

// sessionURL returns the base URL of the session.
func (v *values) sessionURL() string { return v.baseURL + "/r/" + string(v.key) }

// placeholders lists the placeholders: see Config.
var placeholders = []string{"{prompt}", "{base_url}", "{key}", "{model}", "{workdir}", "{home}", "{context}", "{max_output}"}

// mostOutput bounds {max_output}. It is the number of tokens that several harnesses leave for an answer.
const mostOutput = 32000

// expand replaces the placeholders in a text. It does not search the inserted values for
// placeholders. Other text in braces stays as it is.
func (v *values) expand(text string) string {
	return strings.NewReplacer(
		"{prompt}", v.prompt, "{base_url}", v.sessionURL(), "{key}", string(v.key),
		"{model}", v.model, "{workdir}", v.work(), "{home}", v.home(),
		"{context}", strconv.FormatInt(v.context, 10), "{max_output}", strconv.FormatInt(min(v.context/4, mostOutput), 10),
	).Replace(text)
}

// environ returns the environment of the command.
func (v *values) environ(env map[string]string) []string {
	all := map[string]string{
		"HOME":     v.home(),
		"PWD":      v.work(),
		"TMPDIR":   filepath.Join(v.folder, tempFolder),
		"TERM":     "dumb",
		"NO_COLOR": "1",
		"LANG":     "C.UTF-8",
	}
	for _, name := range inherited {
		if value, ok := os.LookupEnv(name); ok {
			all[name] = cmp.Or(value, all[name])
		}
	}
	for name, value := range env {
		all[name] = v.expand(value)
	}
	list := make([]string, 0, len(all))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		list = append(list, name+"="+all[name])
	}
	return list
}

// writeFiles writes the files of the configuration below HOME.
func (v *values) writeFiles(files map[string]string) error {
	for path, text := range files {
		full := filepath.Join(v.home(), path)
		if err := os.MkdirAll(filepath.Dir(full), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(full, []byte(v.expand(text)), 0o600); err != nil {
			return fmt.Errorf("write %s: %w", path, err)
		}
	}
	return nil
}

package runfolder

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/config"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/input"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/plainjson"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/tame"
)

// An Identity is what the rows of a run depend on besides its tasks: a run that is
// continued must have the same, but for what loader.changes lets pass. Everything else
// may change.
type Identity struct {
	// SHA256 is the digest of the fields below and of the tokenizer and template.
	SHA256 string `json:"sha256"`
	// Settings are the values of the settings that rows depend on.
	Settings map[string]json.RawMessage `json:"settings"`
	// AgentFileSHA256 is the digest of the agent file's content; empty: there is none.
	AgentFileSHA256 string `json:"agent_file_sha256,omitempty"`
}

// keptSetting reports whether a run keeps the value of a setting for life. Of the
// tasks, samples and limit the run keeps what was planned; see snapshot.go.
func keptSetting(key string) bool {
	switch key {
	case "agent.keep", "reward.processes", "reward.timeout", "tokens.experimental":
		return false // rows are the same either way
	case "agent.file", "tokens.tokenizer":
		return false // the content counts, wherever it lies
	case "output.messages":
		return true
	}
	section, _, _ := strings.Cut(key, ".")
	return section == "agent" || section == "tokens" || section == "reward"
}

// IdentityOf is that of a run with this configuration.
func IdentityOf(l *config.Loader, model *Model) (Identity, error) {
	id := Identity{Settings: map[string]json.RawMessage{}}
	for _, s := range l.Settings {
		if !keptSetting(s.Key) {
			continue
		}
		raw, err := s.Json()
		if err != nil {
			return id, err
		}
		id.Settings[s.Key] = raw
	}
	if path := l.Config.Agent.File; path != "" {
		b, err := input.Read(path, input.MaxAgentFile, input.Wait)
		if err != nil {
			return id, exit.Usagef("agent.file: %w", err)
		}
		sum := sha256.Sum256(b)
		id.AgentFileSHA256 = hex.EncodeToString(sum[:])
	}
	b, err := json.Marshal(struct {
		Identity
		Tokenizer, Template string
	}{id, model.Tokenizer(), model.template()})
	if err != nil {
		return id, err
	}
	sum := sha256.Sum256(b)
	id.SHA256 = hex.EncodeToString(sum[:])
	return id, nil
}

// Changes compares the run with what continues it, and names every difference that
// rows would show. rows says that the dataset holds one: as long as it does not, tokens.*
// may change, since no row was made with what it said before. A tokenizer may be given
// later to a run that had none, also where there are rows: none of them used one.
func Changes(l *config.Loader, had *Info, now Identity, model *Model, rows bool) exit.Complaints {
	var bad exit.Complaints
	defaults := config.NewLoader(func(string) string { return "" })
	for _, s := range l.Settings {
		given, kept := now.Settings[s.Key]
		if !kept || !rows && strings.HasPrefix(s.Key, "tokens.") {
			continue
		}
		before, ok := had.Identity.Settings[s.Key]
		if !ok { // the setting is younger than the run
			before, _ = defaults.ByKey[s.Key].Json() // a default can be written
		}
		if before = plainjson.Compact(before); !bytes.Equal(before, given) {
			bad = append(bad, differs(s.Key, showValue(before), showValue(given), s.Given()))
		}
	}
	if had.Identity.AgentFileSHA256 != now.AgentFileSHA256 {
		bad = append(bad, differs("agent.file", cmp.Or(ShortDigest(had.Identity.AgentFileSHA256), "no agent file"),
			cmp.Or(ShortDigest(now.AgentFileSHA256), "no agent file"), l.ByKey["agent.file"].Given()))
	}
	if !rows || had.Model == nil {
		return bad
	}
	from := l.ByKey["tokens.tokenizer"].Given()
	if a, b := had.Model.Tokenizer(), model.Tokenizer(); a != b {
		bad = append(bad, differs("tokens.tokenizer", cmp.Or(ShortDigest(a), "no tokenizer"), cmp.Or(ShortDigest(b), "no tokenizer"), from))
	}
	if a, b := had.Model.template(), model.template(); a != b && model != nil {
		bad = append(bad, differs("tokens.tokenizer: chat template", ShortDigest(a), ShortDigest(b), from))
	}
	return bad
}

// differs is the complaint about one difference.
func differs(what, had, given, from string) error {
	if had == given {
		had, given = "another value", "this one"
	}
	return fmt.Errorf("%s: the run has %s, you gave %s%s", what, had, given, from)
}

// showValue is a value for people.
func showValue(raw json.RawMessage) string {
	var text string
	switch {
	case len(raw) == 0, string(raw) == "null", string(raw) == `""`:
		return "none"
	case json.Unmarshal(raw, &text) == nil:
		return tame.Text(text, 60)
	}
	return tame.Text(string(raw), 60)
}

// ShortDigest shows the beginning of a SHA-256; empty where there is none.
func ShortDigest(hex string) string {
	if len(hex) > 12 {
		hex = hex[:12]
	}
	if hex == "" {
		return ""
	}
	return "sha256 " + hex
}

// ServerChanges compares the servers with those of the run. Another version of the
// same minor release, and another URL, is worth a word; another release, or another
// model behind the handle, may sample other tokens.
func ServerChanges(had, now []Server) (bad exit.Complaints, notices []string) {
	if len(had) == 0 {
		return nil, nil
	}
	for _, n := range now {
		h := had[0]
		for _, s := range had {
			if s.URL == n.URL {
				h = s
			}
		}
		switch {
		case n.Version == h.Version:
		case release(n.Version) == release(h.Version):
			notices = append(notices, fmt.Sprintf("server %s has version %s; the run was begun with %s", n.URL, n.Version, h.Version))
		default:
			bad = append(bad, fmt.Errorf("server %s: the run has version %s, this one is %s", n.URL, h.Version, n.Version))
		}
		if h.Model == nil || n.Model == nil || h.Model.Handle != n.Model.Handle { // another handle is a complaint of its own
			continue
		}
		for _, f := range []struct{ what, had, now string }{
			{"name", h.Model.Name, n.Model.Name},
			{"context window", fmt.Sprint(h.Model.ContextWindow), fmt.Sprint(n.Model.ContextWindow)},
			{"endpoint type", h.Model.EndpointType, n.Model.EndpointType},
		} {
			if f.had != f.now {
				bad = append(bad, fmt.Errorf("server %s: model %s: the run has %s %s, this server %s", n.URL, n.Model.Handle, f.what, cmp.Or(f.had, "-"), cmp.Or(f.now, "-")))
			}
		}
	}
	return bad, notices
}

// release is the first two numbers of a version.
func release(version string) string {
	parts := strings.SplitN(version, ".", 3)
	return strings.Join(parts[:min(2, len(parts))], ".")
}

// Refuse is the error of a run that cannot be continued as it was asked; nil
// where there is nothing to complain about.
func Refuse(dir string, bad exit.Complaints) error {
	if len(bad) == 0 {
		return nil
	}
	for i, err := range bad {
		bad[i] = fmt.Errorf("%s: %w", dir, err)
	}
	return exit.Refuse(exit.Folder, bad,
		"a run keeps its tasks and, from its first row on, everything that its rows depend on; "+ResumeCommand(dir)+" takes all of it from the run, and --out NEW begins another run")
}

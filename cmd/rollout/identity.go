package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// An identity is what the rows of a run depend on besides its tasks: a run that is
// continued must have the same, but for what loader.changes lets pass. Everything else
// may change.
type identity struct {
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

// identity is that of a run with this configuration.
func (l *loader) identity(model *modelInfo) (identity, error) {
	id := identity{Settings: map[string]json.RawMessage{}}
	for _, s := range l.settings {
		if !keptSetting(s.key) {
			continue
		}
		raw, err := s.json()
		if err != nil {
			return id, err
		}
		id.Settings[s.key] = raw
	}
	if path := l.config.Agent.File; path != "" {
		b, err := readInput(path, maxAgentFileBytes, inputWait)
		if err != nil {
			return id, usageError("agent.file: %w", err)
		}
		sum := sha256.Sum256(b)
		id.AgentFileSHA256 = hex.EncodeToString(sum[:])
	}
	b, err := json.Marshal(struct {
		identity
		Tokenizer, Template string
	}{id, model.tokenizer(), model.template()})
	if err != nil {
		return id, err
	}
	sum := sha256.Sum256(b)
	id.SHA256 = hex.EncodeToString(sum[:])
	return id, nil
}

// tokenizer and template are digests; empty where there is no tokenizer.
func (m *modelInfo) tokenizer() string {
	if m == nil {
		return ""
	}
	return m.TokenizerSHA256
}

func (m *modelInfo) template() string {
	if m == nil {
		return ""
	}
	return m.ChatTemplateSHA256
}

// same reports whether prompts are rebuilt alike with both.
func (m *modelInfo) same(other *modelInfo) bool {
	return m.tokenizer() == other.tokenizer() && m.template() == other.template()
}

// json is the value as run.json holds it.
func (s *setting) json() (json.RawMessage, error) {
	v := s.get()
	if sec, ok := v.(secret); ok {
		v = sec.ref
	}
	return encodeJSON(v)
}

// encodeJSON is v on one line, without escaping what only HTML minds.
func encodeJSON(v any) (json.RawMessage, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return compact(bytes.TrimSpace(out.Bytes())), nil
}

// changes compares the run with what continues it, and names every difference that
// rows would show. rows says that the dataset holds one: as long as it does not, tokens.*
// may change, since no row was made with what it said before. A tokenizer may be given
// later to a run that had none, also where there are rows: none of them used one.
func (l *loader) changes(had *runInfo, now identity, model *modelInfo, rows bool) complaints {
	var bad complaints
	defaults := newLoader(func(string) string { return "" })
	for _, s := range l.settings {
		given, kept := now.Settings[s.key]
		if !kept || !rows && strings.HasPrefix(s.key, "tokens.") {
			continue
		}
		before, ok := had.Identity.Settings[s.key]
		if !ok { // the setting is younger than the run
			before, _ = defaults.byKey[s.key].json() // a default can be written
		}
		if before = compact(before); !bytes.Equal(before, given) {
			bad = append(bad, differs(s.key, showValue(before), showValue(given), s.given()))
		}
	}
	if had.Identity.AgentFileSHA256 != now.AgentFileSHA256 {
		bad = append(bad, differs("agent.file", orNone(shortDigest(had.Identity.AgentFileSHA256), "no agent file"),
			orNone(shortDigest(now.AgentFileSHA256), "no agent file"), l.byKey["agent.file"].given()))
	}
	if !rows || had.Model == nil {
		return bad
	}
	from := l.byKey["tokens.tokenizer"].given()
	if a, b := had.Model.tokenizer(), model.tokenizer(); a != b {
		bad = append(bad, differs("tokens.tokenizer", orNone(shortDigest(a), "no tokenizer"), orNone(shortDigest(b), "no tokenizer"), from))
	}
	if a, b := had.Model.template(), model.template(); a != b && model != nil {
		bad = append(bad, differs("tokens.tokenizer: chat template", shortDigest(a), shortDigest(b), from))
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

// given says where a setting's value came from; nothing where that is the run.
func (s *setting) given() string {
	if s.origin == "default" || s.origin == runFile {
		return ""
	}
	return " (" + s.origin + ")"
}

// showValue is a value for people.
func showValue(raw json.RawMessage) string {
	var text string
	switch {
	case len(raw) == 0, string(raw) == "null", string(raw) == `""`:
		return "none"
	case json.Unmarshal(raw, &text) == nil:
		return cut(text, 60)
	}
	return cut(string(raw), 60)
}

func shortDigest(hex string) string {
	if len(hex) > 12 {
		hex = hex[:12]
	}
	if hex == "" {
		return ""
	}
	return "sha256 " + hex
}

func orNone(text, none string) string {
	if text == "" {
		return none
	}
	return text
}

// serverChanges compares the servers with those of the run. Another version of the
// same minor release, and another URL, is worth a word; another release, or another
// model behind the handle, may sample other tokens.
func serverChanges(had, now []serverInfo) (bad complaints, notices []string) {
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
				bad = append(bad, fmt.Errorf("server %s: model %s: the run has %s %s, this server %s", n.URL, n.Model.Handle, f.what, orDash(f.had), orDash(f.now)))
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

// refuseResume is the error of a run that cannot be continued as it was asked; nil
// where there is nothing to complain about.
func refuseResume(dir string, bad complaints) error {
	if len(bad) == 0 {
		return nil
	}
	for i, err := range bad {
		bad[i] = fmt.Errorf("%s: %w", dir, err)
	}
	return &exitError{
		code: exitFolder, err: bad,
		hint: "a run keeps its tasks and, from its first row on, everything that its rows depend on; " + resumeCommand(dir) + " takes all of it from the run, and --out NEW begins another run",
	}
}

// fromRun fills the settings that nothing else gave from a run, those of one section
// or, where section is empty, all but the folder.
func (l *loader) fromRun(info *runInfo, section string) {
	for _, s := range l.settings {
		in, name, _ := strings.Cut(s.key, ".")
		if s.origin != "default" || s.key == "output.dir" || section != "" && in != section {
			continue
		}
		raw := compact(info.Config[in][name])
		if len(raw) == 0 || string(raw) == "null" || string(raw) == `""` {
			continue
		}
		if err := l.put1(s, raw); err != nil {
			l.bad = append(l.bad, fmt.Errorf("%s: %s: %w", runFile, s.key, err))
		}
	}
}

// put1 sets a setting from the JSON that run.json holds of it.
func (l *loader) put1(s *setting, raw json.RawMessage) error {
	texts := []string{string(raw)}
	switch {
	case raw[0] == '"':
		texts = make([]string, 1)
		if err := json.Unmarshal(raw, &texts[0]); err != nil {
			return err
		}
	case raw[0] == '[' && s.reset != nil:
		if err := json.Unmarshal(raw, &texts); err != nil {
			return err
		}
	case bytes.Contains(raw, []byte(`"`+hidden+`"`)) && s.key == "server.headers":
		return errors.New("the run does not keep the values of headers: give " + s.env() + ", or the file again; a reference such as ${env:NAME} is kept")
	case bytes.Contains(raw, []byte(`"`+hidden+`"`)) && s.key == "agent.create":
		return errors.New("the run does not keep the secrets of the agent's tools: give " + s.env() + ", or the file again")
	}
	if s.reset != nil {
		s.reset()
	}
	for _, t := range texts {
		if err := s.set(t); err != nil {
			return err
		}
	}
	s.origin = runFile
	return nil
}

package config

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path"
	"regexp"
	"strings"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
)

// check returns complaints about values that are valid on their own but conflict. The function
// where returns the origin of a key.
func (c *Config) check(where func(key string) string) exit.Complaints {
	var bad exit.Complaints
	complain := func(when bool, key, format string, args ...any) {
		if when {
			bad = append(bad, fmt.Errorf("%s%s: %s", where(key), key, fmt.Sprintf(format, args...)))
		}
	}
	servers := map[string]string{}
	for _, s := range c.Server.URLs {
		err := checkURL(s.URL, "; use server.password")
		complain(err != nil, "server.urls", "%v", err)
		if err != nil {
			continue
		}
		before, ok := servers[sameURL(s.URL)]
		complain(ok, "server.urls", "%s and %s are the same server; list it only once, because max_in_flight applies to each entry", before, s.URL)
		servers[sameURL(s.URL)] = s.URL
	}
	for _, u := range c.Server.EngineMetrics {
		err := checkURL(u, "")
		complain(err != nil, "server.engine_metrics", "%v", err)
	}
	complain((c.Server.ClientCert == "") != (c.Server.ClientKey == ""), "server.client_cert", "must be set together with server.client_key")
	t, prompts := &c.Tokens, c.Tokens.Prompts
	complain(prompts.best() > c.Require(), "tokens.require",
		"with tokens.prompts %s, the highest possible grade is %s; lower tokens.require or choose another source", prompts, prompts.best())
	for _, where := range t.Tap {
		complain(where == "", "tokens.tap", "empty value; want the URL of a tap or the folder of its spool")
		if strings.Contains(where, "://") {
			err := checkURL(where, "")
			complain(err != nil, "tokens.tap", "%v", err)
		}
	}
	complain(prompts == PromptsTap && len(t.Tap) == 0, "tokens.tap",
		"required if tokens.prompts is tap; want the URL of a tap or the folder of its spool")
	complain(prompts != PromptsTap && prompts != PromptsAuto && len(t.Tap) > 0, "tokens.tap",
		"cannot be used with tokens.prompts %s; set tokens.prompts to auto or tap, or remove tokens.tap", prompts)
	complain(t.OneEngine && t.PolicyVersion.URL.Reveal() == "", "tokens.one_engine", "needs a URL in tokens.policy_version")
	r := &c.Reward
	r.check("reward.", complain)
	complain(r.Kind == RewardComponents && len(r.Components) == 0, "reward.components", "required if reward.kind is components")
	complain(r.MinStd > 0 && r.Kind == RewardNone, "reward.min_std", "requires reward.kind, because it compares rewards")
	complain(r.MinStd > 0 && c.Tasks.Samples == 1, "reward.min_std", "requires tasks.samples > 1, because it compares the rewards of a group")
	c.checkRuns(complain)
	c.checkHarness(complain)
	c.checkSessions(complain)
	complain(c.Run.MetricsPprof && c.Run.MetricsAddr == "", "run.metrics_pprof", "needs run.metrics_addr, where the profiles are served")
	return bad
}

// CheckComplete returns a complaint for each missing setting that a run needs. The parameter tasks
// is true if the run needs a task file.
func (c *Config) CheckComplete(tasks bool) exit.Complaints {
	var bad exit.Complaints
	need := func(ok bool, key, flag string) {
		if !ok {
			bad = append(bad, fmt.Errorf("%s is not set: use --%s, or set %s in the configuration file", key, flag, key))
		}
	}
	need(len(c.Server.URLs) > 0 || c.Kind() != KindAgents && c.Kind() != KindRuns, "server.urls", "server")
	need(c.Kind() != KindAgents || c.Agent.Model != "" || c.Agent.File != "", "agent.model", "model or --agent-file")
	need(!tasks || c.Kind() == KindRuns || c.Kind() == KindSessions || c.Tasks.File != "", "tasks.file", "tasks")
	need(c.Output.Dir != "", "output.dir", "out")
	return bad
}

// checkURL accepts an http or https URL that has a host and contains neither a user nor a password.
func checkURL(text, instead string) error {
	u, err := url.Parse(text)
	switch {
	case err == nil && u.User != nil:
		return fmt.Errorf("%s://%s: the URL must not contain a user name or password%s", u.Scheme, u.Host, instead)
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		if near := withScheme(text); near != "" {
			return fmt.Errorf("%q does not begin with http:// or https://; did you mean %s?", text, near)
		}
		if err != nil || strings.ContainsAny(text, "@?#") {
			return errors.New("not a URL (want one like http://127.0.0.1:8283)") // the text and the error from url.Parse can contain a secret
		}
		return fmt.Errorf("%q is not a URL (want one like http://127.0.0.1:8283)", text)
	case u.RawQuery != "" || u.Fragment != "":
		return fmt.Errorf("%s://%s: the URL must not have a query or fragment", u.Scheme, u.Host)
	}
	return nil
}

var (
	// almostScheme matches http or https with one letter too few or too many, or with an incomplete
	// "://".
	almostScheme = regexp.MustCompile(`^(?i:h?t{1,3}p(s?)(?:[:;]/{0,3}|/{1,3}))([^/].*)$`)
	// address matches a host with an optional port and path. Matching text cannot contain a secret.
	address = regexp.MustCompile(`^(\[[0-9A-Fa-f:]+\]|[0-9A-Za-z][0-9A-Za-z.-]*)(:[0-9]{1,5})?(/[0-9A-Za-z/_.-]*)?$`)
)

// withScheme guesses the URL that the user meant if the scheme in text is missing or misspelled, as
// in localhost:8283, http//host or htp://host. It returns "" if text is ambiguous.
func withScheme(text string) string {
	scheme := "http"
	if m := almostScheme.FindStringSubmatch(text); m != nil {
		scheme, text = "http"+strings.ToLower(m[1]), m[2]
	}
	m := address.FindStringSubmatch(text)
	switch {
	case m == nil:
		return ""
	case m[2] == ":443":
		scheme = "https"
	case m[2] == "" && m[1] != "localhost" && !strings.Contains(m[1], "."):
		return "" // the text could be any word
	}
	return scheme + "://" + text
}

func sameURL(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return text
	}
	host, port := strings.TrimSuffix(strings.ToLower(u.Hostname()), "."), u.Port()
	port = cmp.Or(port, map[string]string{"http": "80", "https": "443"}[u.Scheme])
	return u.Scheme + "://" + net.JoinHostPort(host, port) + path.Clean("/"+u.EscapedPath())
}

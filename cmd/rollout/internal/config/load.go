package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rollout-rl/rollout/cmd/rollout/internal/exit"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/format"
	"github.com/rollout-rl/rollout/cmd/rollout/internal/termsafe"
)

// A Loader fills a Config from its four sources. It records the origin of each value.
type Loader struct {
	Config   *Config
	Settings []*Setting
	ByKey    map[string]*Setting
	Bad      exit.Complaints
}

// NewLoader returns a loader whose Config contains the defaults. The function getenv resolves
// references to environment variables.
func NewLoader(getenv func(string) string) *Loader {
	l := &Loader{Config: new(Config), ByKey: map[string]*Setting{}}
	l.Settings = l.Config.settings(getenv)
	for _, s := range l.Settings {
		s.Origin = OriginDefault
		l.ByKey[s.Key] = s
	}
	return l
}

// complain adds a complaint that begins with a location, such as run.yaml:7.
func (l *Loader) complain(place, format string, args ...any) {
	l.Bad = append(l.Bad, fmt.Errorf("%s: %s", place, fmt.Sprintf(format, args...)))
}

// Put sets a setting from the given strings and records the origin of the value.
func (l *Loader) Put(s *Setting, origin string, texts ...string) {
	if s.reset != nil {
		s.reset()
	}
	for _, t := range texts {
		if err := s.set(t); err != nil {
			l.complain(origin, "%s: %v", s.Key, err)
			return
		}
	}
	s.Origin = origin
}

// env reads every environment variable ROLLOUT_… that names a setting. Lists are split at commas. A
// variable can contain a password directly, because its name then serves as the reference.
func (l *Loader) env(getenv func(string) string) {
	for _, s := range l.Settings {
		text := getenv(s.env())
		if text == "" {
			continue
		}
		texts := []string{text}
		if s.reset != nil {
			texts = strings.Split(text, ",")
		}
		if _, secret := s.get().(Secret); secret && !reference.MatchString(text) {
			texts[0] = "${env:" + s.env() + "}"
		}
		l.Put(s, "$"+s.env(), texts...)
	}
}

// unknownVariables reports environment variables that look like settings but are not. The name of
// such a variable begins with the name of a section or resembles the name of a setting. A variable
// is not reported if a reference such as ${env:NAME} uses it. Any other variable is ignored,
// because it can belong to another program.
func (l *Loader) unknownVariables(environ []string, asked map[string]bool) {
	var names []string
	for _, s := range l.Settings {
		names = append(names, s.env())
	}
	for _, variable := range environ {
		name, value, _ := strings.Cut(variable, "=")
		short, ours := strings.CutPrefix(name, "ROLLOUT_")
		if !ours || value == "" || asked[name] {
			continue
		}
		near := format.Nearest(name, names)
		section, _, inSection := strings.Cut(strings.ToLower(short), "_")
		switch {
		case near != "":
			l.complain("$"+termsafe.Text(name, 60), "not a setting; did you mean %s?", near)
		case inSection && l.isSection(section):
			l.complain("$"+termsafe.Text(name, 60), "not a setting; rollout config show lists all settings")
		}
	}
}

// A flagText contains the strings given for a flag until the loader reads them.
type flagText struct {
	texts []string
	list  bool
	kind  string
}

func (f *flagText) String() string { return strings.Join(f.texts, ",") }
func (f *flagText) Type() string   { return f.kind }
func (f *flagText) Set(text string) error {
	if !f.list {
		f.texts = nil
	}
	f.texts = append(f.texts, text)
	return nil
}

// IsSetting reports whether f was added by AddFlags for a setting.
func IsSetting(f *pflag.Flag) bool {
	_, ok := f.Value.(*flagText)
	return ok
}

// AddFlags adds to cmd the flag -c and the flags of the settings named by keys. Without keys, it
// adds the flags of all settings. When the command runs, it must call load. load reads all four
// sources, calls the functions that it received, and checks the result. It also reports environment
// variables in environ that look like settings but are not. If a source cannot be read, load
// returns a nil Loader. If only values are wrong, the Loader is not nil.
func AddFlags(cmd *cobra.Command, getenv func(string) string, environ []string, keys ...string) (load func(then ...func(*Loader) error) (*Loader, error)) {
	flags := cmd.Flags()
	path := flags.StringP("config", "c", "", "the YAML configuration `FILE`")
	given := map[string]*flagText{}
	for _, s := range NewLoader(getenv).Settings {
		if s.flag == "" || len(keys) > 0 && !slices.Contains(keys, s.Key) {
			continue
		}
		_, isBool := s.get().(bool)
		f := &flagText{list: s.reset != nil, kind: s.arg}
		usage := s.doc
		if isBool {
			f.kind = "bool" // pflag needs this type for a flag that takes no value
		}
		if d := s.Text(); d != "" && !isBool && d != "[]" && d != "0" {
			usage += " (default " + d + ")"
		}
		added := flags.VarPF(f, s.flag, "", usage)
		if isBool {
			added.NoOptDefVal = "true"
		}
		given[s.Key] = f
		if words := slices.Concat(s.enum, s.words); words != nil {
			_ = cmd.RegisterFlagCompletionFunc(s.flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)) // cannot fail, because the flag exists
		}
	}
	return func(then ...func(*Loader) error) (*Loader, error) {
		asked := map[string]bool{}
		look := func(name string) string {
			asked[name] = true
			return getenv(name)
		}
		l := NewLoader(look)
		if *path != "" {
			if err := l.File(*path); err != nil {
				return nil, err
			}
		}
		l.env(look)
		for _, s := range l.Settings {
			if f := given[s.Key]; f != nil && flags.Changed(s.flag) {
				l.Put(s, "--"+s.flag, f.texts...)
			}
		}
		for _, f := range then {
			if err := f(l); err != nil {
				return nil, err
			}
		}
		l.unknownVariables(environ, asked)
		if len(l.Bad) == 0 {
			l.Bad = l.Config.check(l.where)
		}
		return l, l.Bad.Err()
	}
}

// where returns the origin of a key as a prefix for a message.
func (l *Loader) where(key string) string {
	if s := l.ByKey[key]; s != nil && s.Origin != OriginDefault {
		return s.Origin + ": "
	}
	return ""
}

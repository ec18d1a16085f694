package config

import (
	_ "embed"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"
	_ "time/tzdata" // a bare container has no zones

	"github.com/rollout-rl/rollout/cmd/rollout/internal/human"
)

// timezoneSetting is a setting whose value is a zone of the IANA database, or none.
func timezoneSetting(key string, to **time.Location) *Setting {
	return &Setting{
		Key: key, arg: "ZONE",
		set: func(text string) (err error) {
			*to, err = parseTimezone(text)
			return err
		},
		get: func() any {
			if *to == nil {
				return ""
			}
			return (*to).String()
		},
	}
}

// parseTimezone returns the zone with the name, or nil if the name is empty.
func parseTimezone(text string) (*time.Location, error) {
	const want = "want UTC, or a name like Europe/Berlin"
	switch text {
	case "":
		return nil, nil
	case "Local": // a name for Go only, not in the database
		return nil, fmt.Errorf("%q is the zone of this machine: name the server's zone (%s)", text, want)
	}
	zone, err := time.LoadLocation(text)
	if err == nil {
		return zone, nil
	}
	near := ""
	if name := nearestZone(text); name != "" {
		near = "; did you mean " + name + "?"
	}
	return nil, fmt.Errorf("%q is not a time zone of the IANA database (%s)%s", text, want, near)
}

//go:embed zones.txt
var zoneNames string

var zones = sync.OnceValue(func() []string { return strings.Fields(zoneNames) })

// fixedOffset matches a zone that is written as an offset: UTC+2, GMT-05, +02:00.
var fixedOffset = regexp.MustCompile(`(?i)^(?:UTC|GMT)?([+-])0?([0-9]{1,2})(?::?00)?$`)

// nearestZone returns the zone that the user likely meant, or "" if none is near.
func nearestZone(text string) string {
	if m := fixedOffset.FindStringSubmatch(text); m != nil {
		sign := map[string]string{"+": "-", "-": "+"}[m[1]] // the names have the sign of POSIX: west is plus
		n, _ := strconv.Atoi(m[2])
		if name := fmt.Sprintf("Etc/GMT%s%d", sign, n); n > 0 && strings.Contains(zoneNames, name+"\n") {
			return name
		}
		return ""
	}
	plain := func(s string) string { return strings.ToLower(strings.ReplaceAll(s, " ", "_")) }
	lower := make([]string, len(zones()))
	for i, name := range zones() {
		lower[i] = plain(name)
		if plain(text) == lower[i] || strings.HasSuffix(lower[i], "/"+plain(text)) {
			return name
		}
	}
	near := human.Nearest(plain(text), lower)
	for i := range lower {
		if near != "" && lower[i] == near {
			return zones()[i]
		}
	}
	return ""
}

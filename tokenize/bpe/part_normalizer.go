package bpe

// composes reads a normalizer: null, NFC or a sequence of these.
func composes(p part, depth int) (bool, error) {
	switch p.name() {
	case "null":
		return false, nil
	case "NFC":
		return true, nil
	case "Sequence":
		var s struct {
			Type        string `json:"type"`
			Normalizers []part `json:"normalizers"`
		}
		if err := strict(p.raw, "normalizer", &s); err != nil {
			return false, err
		}
		if depth > 0 && len(s.Normalizers) > 0 {
			return false, unsupported("normalizer Sequence inside a Sequence")
		}
		nfc := false
		for _, q := range s.Normalizers {
			c, err := composes(q, depth+1)
			if err != nil {
				return false, err
			}
			nfc = nfc || c
		}
		return nfc, nil
	}
	return false, unsupported("normalizer %s", p.name())
}

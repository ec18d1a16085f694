package letta

type reader[T any] interface {
	*T
	read(s *scanner)
}

// Read parses an object in the server's format, such as a [Step].
func Read[T any, P reader[T]](text string) (*T, error) {
	return readWith[T, P](newScanner(text))
}

func readWith[T any, P reader[T]](s *scanner) (*T, error) {
	defer s.recycle()
	v := new(T)
	P(v).read(s)
	if err := s.End(); err != nil {
		return nil, err
	}
	return v, nil
}

// ReadList parses a list of such objects.
func ReadList[T any, P reader[T]](text string) ([]T, error) {
	return readListWith[T, P](newScanner(text))
}

func readListWith[T any, P reader[T]](s *scanner) ([]T, error) {
	defer s.recycle()
	var v []T
	listOf[T, P](s, &v)
	if err := s.End(); err != nil {
		return nil, err
	}
	return v, nil
}

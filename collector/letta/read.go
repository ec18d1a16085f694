package letta

// A reader is a type of ours that can be read from JSON.
type reader[T any] interface {
	*T
	read(s *scanner)
}

// Read reads an object as the server sends it, such as a [Step].
func Read[T any, P reader[T]](text string) (*T, error) {
	return readWith[T, P](newScanner(text))
}

func readWith[T any, P reader[T]](s *scanner) (*T, error) {
	defer s.recycle()
	v := new(T)
	P(v).read(s)
	if err := s.end(); err != nil {
		return nil, err
	}
	return v, nil
}

// ReadList reads a list of such objects.
func ReadList[T any, P reader[T]](text string) ([]T, error) {
	return readListWith[T, P](newScanner(text))
}

func readListWith[T any, P reader[T]](s *scanner) ([]T, error) {
	defer s.recycle()
	var v []T
	listOf[T, P](s, &v)
	if err := s.end(); err != nil {
		return nil, err
	}
	return v, nil
}

package mapped

// CanMap reports whether long lists are mapped.
const CanMap = canMap

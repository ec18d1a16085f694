package mapped

const CanMap = canMap

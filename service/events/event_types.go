package events

// An EventType is a kind of event: its name, when it happens, and a value of the type of its data.
type EventType struct {
	Name  string
	About string
	Data  any
}

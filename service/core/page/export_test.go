package page

// ListScan is what tests outside of the package look at.
const ListScan = maxListCost

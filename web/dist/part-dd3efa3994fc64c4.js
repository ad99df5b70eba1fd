import{a,b,c}from"./part-e418a7542a6fde5c.js";import"./part-0e85cbcb5365c45e.js";export{b as EditRule,a as Rules,c as Vacation};

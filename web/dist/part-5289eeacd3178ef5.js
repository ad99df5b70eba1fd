import{a,b,c}from"./part-0dab42ec5da75980.js";import"./part-95761c75c6c3a144.js";export{b as EditRule,a as Rules,c as Vacation};

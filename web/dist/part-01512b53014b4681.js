import{a,b,c}from"./part-fa276fa130cd4ece.js";import"./part-496c1e9093330927.js";export{b as EditRule,a as Rules,c as Vacation};

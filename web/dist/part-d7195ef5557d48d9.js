import{a,b,c}from"./part-c685019ea371110b.js";import"./part-de0b7d37607ec344.js";export{b as EditRule,a as Rules,c as Vacation};
